"""The network and the settings of a node in Chinese. Data only; the English stands where each is judged."""

from collections.abc import Mapping
from types import MappingProxyType

from contract.language import Book

_NETWORK: Mapping[str, str] = MappingProxyType(
    {
        "network: {what}": "网络：{what}",
        "none usable": "没有可用的",
        "no network: {why}": "没有网络：{why}",
        "{variables}, address {address}": "{variables}，地址 {address}",
        "undecided until probed: {names}": "待探测后决定：{names}",
        "not taken:": "未选用：",
        "{name} ({address}) at {rate}": "{name}（{address}），{rate}",
        "{what}, {against}, for want of anything better": "{what}，{against}，但没有更好的",
        "{what}, the fastest of {n} usable interfaces": "{what}，是 {n} 个可用接口中最快的",
        "{what}, preferred to {other} ({why})": "{what}，优先于 {other}（{why}）",
        "{what}, the only usable interface": "{what}，是唯一可用的接口",
        "{what}: the advertised rates do not tell it from {others}, a probe between the nodes decides; {basis} meanwhile": (
            "{what}：标称速率分不清它与 {others}，由节点间的探测决定；在此之前取它，因为{basis}"
        ),
        "{names} and {n} more": "{names} 等，另有 {n} 个",
        "on the default route": "在默认路由上",
        "the first in order": "排在最前",
        "an unknown rate (taken as {rate})": "速率未知（按 {rate} 计）",
        "{name} (an unknown rate (taken as {rate}))": "{name}（速率未知，按 {rate} 计）",
        "no usable interface among {all}": "没有可用的接口：{all}",
        "none at all": "一个接口也没有",
        "{source} is set": "已设置 {source}",
        "{source} is set: {name} at {rate}": "已设置 {source}：{name}，{rate}",
        "{source} is set, but there is no such interface here ({there})": (
            "已设置 {source}，但这里没有这个接口（有：{there}）"
        ),
        "{name} has no address that others can reach": "{name} 没有别的节点能到达的地址",
        "{name} runs at {rate}, {best} at {faster}": "{name} 是 {rate}，{best} 是 {faster}",
        "usable at {rate}, but another one is set": "可用，{rate}，但设置的是另一个",
        "the same cable as {taken}": "与 {taken} 是同一根线",
        "better at {rate}, but {taken} is set": "更快，{rate}，但设置的是 {taken}",
        "{rate}, slower than {taken} at {faster}": "{rate}，慢于 {taken} 的 {faster}",
        "as fast as {taken}, which is on the default route's network": "与 {taken} 一样快，而后者在默认路由的网络上",
        "as fast as {taken}, which comes first": "与 {taken} 一样快，而后者排在前面",
        "{name}: {why}": "{name}：{why}",
        "{root}: no {file} there, and sysfs holds no addresses": "{root}：没有 {file}，而 sysfs 中没有地址",
        "{file}: not the expected shape: {why}": "{file}：格式不对：{why}",
        "the kernel refuses to list addresses": "内核拒绝列出地址",
    }
)

_ODD_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "{setting}: NCCL ignores a value of one character": "{setting}：NCCL 会忽略只有一个字符的值",
        "{setting} matches nothing here ({names})": "{setting} 在这里什么也匹配不到（有：{names}）",
        "there is nothing": "什么也没有",
        "{setting} is a prefix and also matches {names}; ={exact} is exact": (
            "{setting} 是前缀，也会匹配 {names}；写成 ={exact} 才是精确的"
        ),
        "{setting}: Gloo knows no signs, only exact names": "{setting}：Gloo 不认符号，只认精确的名字",
        "{setting}: no interface {names} here, and Gloo fails without": (
            "{setting}：这里没有接口 {names}，Gloo 缺了它会失败"
        ),
        "{setting} does not mean [node] interface = {name}": "{setting} 与 [node] interface = {name} 不是同一个",
        "{setting} takes {hca}: {why}": "{setting} 选了 {hca}：{why}",
        "{setting} takes {hca}, which has no active port": "{setting} 选了 {hca}，而它没有活动的端口",
        "{setting}, where {ours} would be the choice": "{setting}，而应选的是 {ours}",
    }
)

_WHY_NOT: Mapping[str, str] = MappingProxyType(
    {
        "loopback": "环回接口",
        "tunnel": "隧道",
        "wireless": "无线网卡",
        "virtual": "虚拟接口",
        "no usable address": "没有可用的地址",
        "routing domain, not a network": "是路由域，不是网络",
        "bridge of containers or guests: no network card is its port": "容器或虚拟机的网桥：没有网卡接在上面",
        "of containers, guests or an overlay network": "属于容器、虚拟机或叠加网络",
        "represents a virtual function or a switch port": "代表一个虚拟功能或交换机端口",
        "leg of {master}": "{master} 的成员",
        "port of {master}": "{master} 的端口",
        "its port {port} is {state}": "它的端口 {port} 状态为 {state}",
        "all that is under it is down: {names}": "它下面的接口都不通：{names}",
        "USB: a service processor's or a gadget's, and no default route": "USB：属于管理芯片或外设，也没有默认路由",
        "virtual, with no network card under it": "虚拟接口，下面没有网卡",
        "its active leg {name} is down": "它的活动成员 {name} 不通",
        "in the routing domain {name}": "在路由域 {name} 中",
        "named for storage": "名字表明用于存储",
        "on {hca}, which is not beside the GPUs: storage": "在 {hca} 上，而它不在 GPU 旁：用于存储",
        "switched off": "已关闭",
        "no carrier": "没有载波",
        "down": "不通",
        "dormant": "休眠",
        "lowerlayerdown": "下层不通",
        "notpresent": "不存在",
        "its state cannot be read": "读不到它的状态",
        # HCAs
        "EFA: NCCL reaches it through its own plugin, not as an InfiniBand device": (
            "EFA：NCCL 通过专门的插件使用它，不当作 InfiniBand 设备"
        ),
        "iWARP: NCCL speaks InfiniBand and RoCE only": "iWARP：NCCL 只支持 InfiniBand 和 RoCE",
        "usNIC: NCCL speaks InfiniBand and RoCE only": "usNIC：NCCL 只支持 InfiniBand 和 RoCE",
        "RDMA in software: not faster than the socket under it": "软件 RDMA：不比它下面的套接字快",
        "neither an InfiniBand nor a RoCE device": "既不是 InfiniBand 也不是 RoCE 设备",
        "virtual function of {name}": "{name} 的虚拟功能",
        "subfunction of its card": "网卡的子功能",
        "no port with a known link layer": "没有链路层已知的端口",
        "no port": "没有端口",
        "not on a NUMA node of the GPUs: storage or management": "不在 GPU 的 NUMA 节点上：用于存储或管理",
        "not beside any GPU: storage or management": "不在任何 GPU 旁：用于存储或管理",
        "port {n} is INIT: no subnet manager has seen it": "端口 {n} 为 INIT：子网管理器没有发现它",
        "port {n} is {state}": "端口 {n} 状态为 {state}",
        "{layer}, and {taken} is taken: link layers are not mixed": "{layer}，而选用的是 {taken}：链路层不混用",
        "{rate} Gb/s, slower than the {best} Gb/s taken": "{rate} Gb/s，慢于选用的 {best} Gb/s",
        "its rate is unknown, {best} Gb/s are taken": "速率未知，选用的是 {best} Gb/s",
        "no HCA here, NCCL uses sockets": "这里没有 HCA，NCCL 使用套接字",
        "none of {n} HCA belongs to NCCL": "{n} 个 HCA 都不归 NCCL 用",
        "none of {n} HCAs belongs to NCCL": "{n} 个 HCA 都不归 NCCL 用",
        "{n} HCA ({layer}) at {rate}": "{n} 个 HCA（{layer}），{rate}",
        "{n} HCAs ({layer}) at {rate}": "{n} 个 HCA（{layer}），{rate}",
        "{rate} beside the GPUs": "{rate}，在 GPU 旁",
        "unknown rate": "速率未知",
        "beside the GPUs, but not active: {names}": "在 GPU 旁，但未激活：{names}",
        "no HCA beside the GPUs is active ({names}), and the others are not used in their place": (
            "GPU 旁的 HCA 都未激活（{names}），其余的不用来代替它们"
        ),
    }
)

_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "setting": "设置",
        "found": "现值",
        "wanted": "应为",
        "ok": "正常",
        "wrong": "不对",
        "not on this machine": "本机没有",
        "cannot be read": "读不到",
        "{fix} ({why})": "{fix}（{why}）",
        "unlimited": "不限",
        "{soft} (hard {hard})": "{soft}（硬限制 {hard}）",
        "not set: 1 for workers": "未设置：worker 用 1",
        "cpu governor": "CPU 调频策略",
        "memlock limit": "memlock 限制",
        "open files limit": "打开文件数限制",
        "the kernel compacts memory in the middle of steps": "内核会在训练步中间整理内存",
        "it moves pages that are pinned to their GPU's side anyway": "它会搬动本已固定在 GPU 一侧的内存页",
        "with it the page cache of a data set stalls allocations": "打开它，数据集的页缓存会让内存分配停顿",
        "swapped-out pages of a rank make all the others wait": "一个 rank 的内存被换出，其余 rank 都要等",
        "the launch of kernels waits for a sleepy core": "启动 GPU 核函数要等降频的 CPU 核",
        "RDMA pins its buffers": "RDMA 要锁定缓冲区",
        "loaders, sockets and shards all hold files open": "数据加载、套接字和分片都要打开文件",
        "every rank starts so many threads, and all ranks share the cores": (
            "每个 rank 都会启动这么多线程，而所有 rank 共用 CPU 核"
        ),
        "as root: {command}": "以 root 执行：{command}",
        "{limit} in slurmd.service, {propagate} in slurm.conf": "slurmd.service 中设 {limit}，slurm.conf 中设 {propagate}",
        "unset {name}, or set it in [job] environment to cores divided by ranks": (
            "取消 {name}，或在 [job] environment 中设为 CPU 核数除以 rank 数"
        ),
    }
)

_CHANGES: Mapping[str, str] = MappingProxyType(
    {
        "{place} (only root changes a node)": "{place}（只有 root 能改节点设置）",
        "still needed by {names}: nothing put back": "{names} 还需要：没有恢复",
        "nothing to change": "没有要改的",
        "{path}: {before} → {after}": "{path}：{before} → {after}",
        "{path}: {before} → {after}: {problem}": "{path}：{before} → {after}：{problem}",
        "changed since by somebody else, {before} not put back": "之后被别人改过，没有恢复成 {before}",
        "{value} did not stay": "写入 {value} 后没有生效",
        "Permission denied": "没有权限",
        "Read-only file system": "文件系统只读",
    }
)

PAGES = (_NETWORK, _ODD_SETTINGS, _WHY_NOT, _SETTINGS, _CHANGES)
NODE = Book(*PAGES)
