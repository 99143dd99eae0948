"""What is wrong with a configuration, in Chinese. Data only; the English stands where each problem is found."""

from collections.abc import Mapping
from types import MappingProxyType

from contract.language import Book

_READING: Mapping[str, str] = MappingProxyType(
    {
        "not TOML: {why}": "不是有效的 TOML：{why}",
        "{what} (at line {line}, column {column})": "{what}（第 {line} 行第 {column} 列）",
        "{what} (at end of document)": "{what}（文件末尾）",
        "is no text in UTF-8: is it the right file?": "不是 UTF-8 文本，请检查文件是否正确",
        "No such file or directory": "文件不存在",
        "Is a directory": "是目录，不是文件",
        "Permission denied": "没有权限",
        "[Errno {n}] {why}: {path}": "{why}：{path}",
        "{path}: {why}": "{path}：{why}",
        "write it as section.key=value": "请写成 section.key=value",
        "{name} is not a table": "{name} 不是表",
        "unknown key": "没有这个键",
        'did you mean "{key}"?': "是不是“{key}”？",
        "known here: {keys}": "这里可用的键：{keys}",
        "cannot change any more: {why}": "不能再改：{why}",
        "it decides which data comes next, and steps would lose or repeat samples": (
            "它决定接下来读哪些数据，改了会漏掉或重复样本"
        ),
        "it is what this run is; submit a new one": "它就是这个任务本身，请提交新任务",
        "the shape stands in the other keys of [model]": "网络形状已写在 [model] 的其他键里",
        "the run has started from it already": "任务已经从它开始训练",
    }
)

# What a value must be: pydantic's sentences as contract/plain.py tells them, and ours.
_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "is '{value}'; {why}": "现为 '{value}'；{why}",
        "is {value}; {why}": "现为 {value}；{why}",
        "field required": "必须填写",
        "input should be a valid integer": "应为整数",
        "input should be a valid integer, got a number with a fractional part": "应为整数，不能有小数",
        "input should be a valid number": "应为数字",
        "input should be a finite number": "应为有限的数，不能是 inf 或 nan",
        "input should be a valid boolean": "应为 true 或 false",
        "input should be a valid string": "应为字符串",
        "input should be a valid list": "应为列表",
        "input should be greater than {bound}": "应大于 {bound}",
        "input should be greater than or equal to {bound}": "应大于或等于 {bound}",
        "input should be less than {bound}": "应小于 {bound}",
        "input should be less than or equal to {bound}": "应小于或等于 {bound}",
        "input should be a multiple of {number}": "应为 {number} 的倍数",
        "input should be {choices} or {last}": "应为 {choices} 或 {last}",
        "input should be '{only}'": "应为 '{only}'",
        "string should have at least {n} character": "至少要有 {n} 个字符",
        "string should have at least {n} characters": "至少要有 {n} 个字符",
        "string should have at most {n} character": "最多 {n} 个字符",
        "string should have at most {n} characters": "最多 {n} 个字符",
        "string should match pattern '{pattern}'": "应匹配 '{pattern}'",
        "list should have at least {n} item after validation, not {there}": "至少要有 {n} 项，现有 {there} 项",
        "list should have at least {n} items after validation, not {there}": "至少要有 {n} 项，现有 {there} 项",
        "list should have at most {n} item after validation, not {there}": "最多 {n} 项，现有 {there} 项",
        "list should have at most {n} items after validation, not {there}": "最多 {n} 项，现有 {there} 项",
        "keys should be strings": "键应为字符串",
        "a table of keys belongs here, as in [section] or {key = value}": (
            "这里应为由键组成的表，如 [section] 或 {{key = value}}"
        ),
        "write {form}": "请写{form}",
        "at most 40 of a-z, 0-9 and -, beginning with a letter or a digit": (
            "最多 40 个 a-z、0-9 和 -，以字母或数字开头"
        ),
        "letters, digits and _ . , : @ / + = - only, no spaces": (
            "字母、数字和 _ . , : @ / + = -，不能有空格"
        ),
        "a variable's name: letters, digits and _, not beginning with a digit": (
            "变量名：字母、数字和 _，不以数字开头"
        ),
        "an option of sbatch without its dashes, as in gres or cpus-per-task": (
            "sbatch 选项名，不带前面的 --，如 gres 或 cpus-per-task"
        ),
        "one line without control characters": "一行文字，不含控制字符",
        "/path or /path:/path/inside": "/路径 或 /路径:/容器内路径",
        "an address that begins with http:// or https://, without a query": (
            "以 http:// 或 https:// 开头、不带查询参数的地址"
        ),
        "empty, or an address that begins with http:// or https://": (
            "空，或以 http:// 或 https:// 开头的地址"
        ),
        "empty, or a time of the day as 08:30": "空，或时刻，如 08:30",
        "empty, or hours of the day as 22:00-08:00": "空，或时段，如 22:00-08:00",
        "no class of failures; the classes are {classes}": "没有这种故障类别；可用的有 {classes}",
    }
)

_RUN: Mapping[str, str] = MappingProxyType(
    {
        "set exactly one of steps ({steps}) and tokens ({tokens})": (
            "steps（{steps}）与 tokens（{tokens}）必须且只能设一个"
        ),
        '{label} is {value}; it takes "true" or "false"': '{label} 现为 {value}；只能是 "true" 或 "false"',
        '{label} takes "s3://bucket/prefix" and nothing else': '{label} 只能是 "s3://bucket/prefix"',
        'takes "s3://bucket/prefix" and nothing else': '只能是 "s3://bucket/prefix"',
        "ciuic sets this option itself; remove it": "这个选项由 ciuic 设置，请删掉",
        "{workers} workers for {gpus} GPUs; each worker needs one of its own": (
            "{workers} 个 worker 对 {gpus} 个 GPU；每个 worker 需要一个"
        ),
        "{seconds} s is the whole time limit of {minutes} min": "{seconds} 秒已占满 {minutes} 分钟的时限",
        'the local executor starts no container; use executor = "slurm", or start ciuic inside': (
            'local 执行方式不启动容器；请用 executor = "slurm"，或在容器里启动 ciuic'
        ),
        "{path} is to be seen in the container, and no mount takes a comma, a colon or a blank in a path": (
            "{path} 要挂进容器，而挂载路径不能含逗号、冒号或空格"
        ),
        "{path} holds {sign}, which Slurm does not take in paths": "{path} 含有 {sign}，Slurm 的路径不接受",
        '{zone} is not known here; a name such as "Asia/Shanghai" or "UTC" (system package tzdata)': (
            '这里不认识 {zone}；请写 "Asia/Shanghai" 或 "UTC" 这样的名字（系统软件包 tzdata）'
        ),
        "two robots take their key from {variable}; name another variable for the second": (
            "两个机器人都从 {variable} 取 key；请给第二个换一个变量"
        ),
        "the package is not installed: {command}": "没有安装这个包：{command}",
        "no key in the environment variable {key} (or {offline})": (
            "环境变量 {key} 中没有密钥（或设 {offline}）"
        ),
        "{ranks} of {all} ranks, counted from 0": "rank {ranks} 不存在：共 {all} 个，从 0 数起",
        "ciuic's own trainer does this, not a program of your own ([job] command)": (
            "这是 ciuic 自带训练程序的功能，自己的程序（[job] command）没有"
        ),
    }
)

_TRAINING: Mapping[str, str] = MappingProxyType(
    {
        'the global batch only changes with adaptive = "grow"': '只有 adaptive = "grow" 才会改变全局 batch',
        "{headroom} leaves nothing below memory_high": "{headroom} 使 memory_high 之下没有余地",
        "is below micro_batch_size = {size}": "小于 micro_batch_size = {size}",
        'source = "prometheus" needs it': 'source = "prometheus" 需要它',
        "{size} is not a multiple of micro_batch_size * ranks = {product}; {fits} would be": (
            "{size} 不是 micro_batch_size * rank 数 = {product} 的倍数；{fits} 可以"
        ),
        "balance with zero_stage = 3 cannot tell a slow rank from one that waits for weights; use 2": (
            "zero_stage = 3 时 balance 分不清慢的 rank 和等权重的 rank；请用 2"
        ),
        "grow makes steps of different sizes, so run.steps cannot say where the schedule ends": (
            "grow 会改变每步的大小，run.steps 说不清何时结束"
        ),
        "set run.tokens instead": "请改设 run.tokens",
        "nvml needs gpus_per_node; without GPUs use phases": (
            "nvml 需要 gpus_per_node；没有 GPU 时请用 phases"
        ),
        "{least} is more than auto_most_minutes ({most})": "{least} 大于 auto_most_minutes（{most}）",
        "takes exactly one group, for the step; it has {groups}": (
            "必须正好有一个分组，用来取步数；现有 {groups} 个"
        ),
        "no regular expression: {why}": "不是正则表达式：{why}",
        "for programs of your own ([job] command); ciuic's trainer has its own place": (
            "只用于自己的程序（[job] command）；ciuic 的训练程序有自己的位置"
        ),
        "copies ([backup], [mirror]) are made of ciuic's own checkpoints only": (
            "只有 ciuic 自己的检查点才会被复制（[backup]、[mirror]）"
        ),
        'takes "https://host" or "https://host:port", without bucket, path or user': (
            '只能是 "https://主机" 或 "https://主机:端口"，不带桶、路径或用户'
        ),
        "{path} is not an absolute path": "{path} 不是绝对路径",
        "{dense} is more than the {layers} layers there are": "{dense} 多于总层数 {layers}",
        "DeepSeek-V2 has no layer for it; use family deepseek_v3, or 0": (
            "DeepSeek-V2 没有这一层；请用 family deepseek_v3，或设为 0"
        ),
        "{experts} experts do not divide into {groups}": "{experts} 个专家不能均分成 {groups} 组",
        "{wanted}, a token can reach {reachable} experts": "{wanted}，而一个 token 最多能到 {reachable} 个专家",
        "{factor} would drop every other step; use more than 1, or 0": (
            "{factor} 会隔一步丢一步；请用大于 1 的值，或 0"
        ),
        "dtype is {dtype}, so there is nothing to emulate": "dtype 是 {dtype}，没有可模拟的",
        "lower-scale needs a loss scale, and {dtype} has none; use skip": (
            "lower-scale 需要 loss scale，而 {dtype} 没有；请用 skip"
        ),
        "{warmup} {unit} are longer than the schedule's {length}": "{warmup} {unit} 超过了整个计划的 {length}",
        "{kind} does not anneal; use cosine, quarter_cosine or wsd": (
            "{kind} 没有退火；请用 cosine、quarter_cosine 或 wsd"
        ),
        "0 with {dtype} loses optimizer state in DeepSpeed; use 1, or precision.dtype = fp32": (
            "DeepSpeed 在 {dtype} 下用 0 会丢失优化器状态；请用 1，或 precision.dtype = fp32"
        ),
        # weights to start from
        "set beside {other}, which has a shape of its own": "与 {other} 同时设置，而后者自带网络形状",
        "V2's routers have no bias; use balance_loss_weight": "V2 的路由没有偏置；请用 balance_loss_weight",
        "V2 has no layer for it; set 0": "V2 没有这一层；请设为 0",
        "{path} is missing": "缺少 {path}",
        "is {ours}, but the weights of init_from have {theirs}; leave the key out": (
            "现为 {ours}，而 init_from 的权重是 {theirs}；请去掉这个键"
        ),
        "{path} cannot be read: {why}": "无法读取 {path}：{why}",
        "{path} holds a {kind} model; {known} can be trained": "{path} 是 {kind} 模型；能训练的是 {known}",
        "{known} can be trained": "能训练的是 {known}",
        "the weights in {path} are quantised; convert them to bf16 first (DeepSeek's fp8_cast_bf16.py)": (
            "{path} 中的权重是量化过的；请先转成 bf16（DeepSeek 的 fp8_cast_bf16.py）"
        ),
        "{path} shares the embedding with the head (tie_word_embeddings), which is not supported": (
            "{path} 的嵌入与输出层共享（tie_word_embeddings），不支持"
        ),
        "{path} has no *.safetensors files": "{path} 中没有 *.safetensors 文件",
    }
)

_DATA: Mapping[str, str] = MappingProxyType(
    {
        "not set; `ciuic trainer prepare-data` makes a directory of token shards": (
            "没有设置；用 `ciuic trainer prepare-data` 生成 token 分片目录"
        ),
        "set beside corpora; list it among them": "与 corpora 同时设置；请把它列入 corpora",
        "{name} has another tokenizer than {first}; prepare it again with --tokenizer {first}": (
            "{name} 与 {first} 的分词器不同；请用 --tokenizer {first} 重新准备"
        ),
        "{where}: {index} has format version {found}, this program reads {known}": (
            "{where}：{index} 的格式版本是 {found}，本程序能读 {known}"
        ),
        "{where}: {index} cannot be read: {why}": "{where}：无法读取 {index}：{why}",
        "{path}: cannot be read: {why}": "{path}：无法读取：{why}",
        "{path}: no prepared data there (no {index}); `ciuic trainer prepare-data` makes it": (
            "{path}：没有准备好的数据（缺 {index}）；用 `ciuic trainer prepare-data` 生成"
        ),
        "{path}: {file} is missing, the index names it": "{path}：缺少 {file}，而索引中有它",
        "{path}: {file} has {size} bytes, the index says {wanted}": (
            "{path}：{file} 有 {size} 字节，索引说是 {wanted}"
        ),
    }
)

_DEEPSPEED: Mapping[str, str] = MappingProxyType(
    {
        "set either config or inline, not both": "config 与 inline 只能设一个",
        "{path}: a JSON object was expected": "{path}：应为 JSON 对象",
        "is {value}; a table was expected": "现为 {value}；应为表",
        "belongs into nothing: {why}": "不能设置：{why}",
        "belongs into {place}": "应写在 {place} 中",
        "the trainer divides gradients itself": "梯度由训练程序自己平均",
        "pipelines are not supported": "不支持流水线并行",
        "tensor parallelism is not supported": "不支持张量并行",
        "it serves generation, which is not supported": "它用于生成，不支持",
        "it serves inference, which is not supported": "它用于推理，不支持",
        "`ciuic trainer fit` looks for the micro-batch": "micro-batch 由 `ciuic trainer fit` 寻找",
        "DeepSpeed has removed this feature; take the key out": "DeepSpeed 已删除这个功能；请去掉这个键",
        "DeepSpeed has no such top-level key (it would ignore it silently)": (
            "DeepSpeed 没有这个顶层键（会被它悄悄忽略）"
        ),
        "is {steps}; at least 1 was expected": "现为 {steps}；至少应为 1",
        "enabled beside bf16 or fp8; enable one of them": "与 bf16 或 fp8 同时启用；只能启用一个",
        "AdamW is what the JSON may ask for": "JSON 里只能要求 AdamW",
        'take the table out and set [optimizer] name = "muon", with the rate of AdamW': (
            '请去掉这个表，改设 [optimizer] name = "muon"，学习率用 AdamW 的'
        ),
        "{size} does not divide {n} ranks": "{n} 个 rank 不能被 {size} 整除",
        "ZeRO {stage} does not divide the weights; use zero_stage = 3": (
            "ZeRO {stage} 不切分权重；请用 zero_stage = 3"
        ),
        "{size} does not divide {n} experts": "{n} 个专家不能被 {size} 整除",
        "needs zero_stage = 2 or 3: with less, ranks would clip by different norms": (
            "需要 zero_stage = 2 或 3：更低时各 rank 会按不同的范数裁剪梯度"
        ),
        "Muon puts matrices together over all ranks, which have different experts; use adamw": (
            "Muon 要在所有 rank 上拼合矩阵，而各 rank 的专家不同；请用 adamw"
        ),
        "ranks meet in every layer, so adaptive = balance has nothing to gain; use another": (
            "各 rank 在每一层都要会合，adaptive = balance 没有好处；请换一种"
        ),
        "its layers read sizes on the host, which cannot be compiled; leave compile_layers off": (
            "它的层要在主机上读取大小，无法编译；请关闭 compile_layers"
        ),
        "is {ours}, but the DeepSpeed JSON's {key} says {theirs}; leave one of the two out": (
            "现为 {ours}，而 DeepSpeed JSON 的 {key} 是 {theirs}；两处只留一处"
        ),
        "{size} does not divide into the DeepSpeed JSON's {key} {steps} * {ranks} ranks": (
            "{size} 不能被 DeepSpeed JSON 的 {key} {steps} × {ranks} 个 rank 整除"
        ),
        "is {value}; only HYBRID is supported": "现为 {value}；只支持 HYBRID",
    }
)

PROBLEMS = Book(_READING, _VALUES, _RUN, _TRAINING, _DATA, _DEEPSPEED)
