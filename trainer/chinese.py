"""What the training program's commands say, in Chinese. Data only; the English stands in the commands."""

from collections.abc import Mapping
from types import MappingProxyType

from contract.language import Book

_FIT: Mapping[str, str] = MappingProxyType(
    {
        "fit: {what}": "fit：{what}",
        "[job] command runs another program; only ciuic's own trainer can be tried": (
            "[job] command 运行的是别的程序；只能试 ciuic 自带的训练程序"
        ),
        "Larger ones are not tried: the global batch has no more samples for a rank (--max N tries them)": (
            "不再试更大的：全局 batch 分给一个 rank 的样本就这么多（要试用 --max N）"
        ),
        "Tries micro-batches up to {most} by real steps, which takes minutes; what is done is kept": (
            "用真实的训练步逐个试 micro-batch，最大到 {most}，需要几分钟；试过的会记住"
        ),
        "{line} (measured before; --anew repeats it)": "{line}（以前测过；--anew 重测）",
        "micro-batch {size}: out of memory": "micro-batch {size}：内存不足",
        "micro-batch {size}: fits, {peak} GiB at the peak, {rate} tokens/s": (
            "micro-batch {size}：放得下，峰值 {peak} GiB，{rate} token/秒"
        ),
        "micro-batch {size}: the trial ended with {codes}\n{said}": "micro-batch {size}：试验以 {codes} 退出\n{said}",
        "a trial did not end within {seconds} s": "一次试验在 {seconds} 秒内没有结束",
        (
            "Not even one sample fits. Shorter [batch] sequence_length, a higher [deepspeed] zero_stage or "
            "offload_optimizer = true need less memory."
        ): (
            "连一个样本也放不下。减小 [batch] sequence_length、提高 [deepspeed] zero_stage 或设 "
            "offload_optimizer = true 可以少用内存。"
        ),
        "The largest that fits: {setting}": "放得下的最大值：{setting}",
        "The fastest measured: {setting}": "测得最快的：{setting}",
        (
            "Measured with the {ranks} ranks of one node; {nodes} nodes divide optimizer states further, so a little "
            "more may fit."
        ): "用一个节点的 {ranks} 个 rank 测得；{nodes} 个节点会把优化器状态分得更细，可能还能再大一点。",
    }
)
_PREPARING: Mapping[str, str] = MappingProxyType(
    {
        "prepare-data: {what}": "prepare-data：{what}",
        "{target}: {train} tokens to train on, {held} held out, vocabulary {vocabulary}": (
            "{target}：训练用 {train} 个 token，留出 {held} 个，词表 {vocabulary}"
        ),
        "at least two documents are needed: one to train on, one to hold out": (
            "至少需要两个文档：一个用来训练，一个留出"
        ),
        "{target} exists and holds other data; remove it or choose another directory": (
            "{target} 已存在，里面是别的数据；请删掉它或换一个目录"
        ),
        "{source}: neither a file nor a directory": "{source}：既不是文件也不是目录",
    }
)

TRAINER = Book(_FIT, _PREPARING)
