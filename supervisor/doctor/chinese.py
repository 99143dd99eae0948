"""What doctor finds, in Chinese. Data only; the English stands where each finding is judged."""

from collections.abc import Mapping
from types import MappingProxyType

from contract.language import Book
from slurm.node import chinese as node
from supervisor.alert_test import HINTS

_REPORT: Mapping[str, str] = MappingProxyType(
    {
        "FAIL": "错误",
        "WARN": "警告",
        "OK": "正常",
        "SKIPPED": "未查",
        "why": "原因",
        "do": "处理",
        "{fail} fail, {warn} warn, {ok} ok, {skipped} skipped": "{fail} 项错误，{warn} 项警告，{ok} 项正常，{skipped} 项未查",
        "could not be examined: {why}": "无法检查：{why}",
        "no answer within {seconds} s": "{seconds} 秒内没有应答",
        "a file system or a service does not answer": "某个文件系统或服务没有应答",
        "it ended with {code}": "它以 {code} 退出",
        "no output": "没有输出",
        "run it again; if it stays so, look at that service or file system by hand": (
            "再运行一次；如果仍然这样，请手工检查那个服务或文件系统"
        ),
    }
)

_SLURM: Mapping[str, str] = MappingProxyType(
    {
        "this recipe runs with executor {executor}: no Slurm needed": "这个配置的执行方式是 {executor}：不需要 Slurm",
        "no Slurm here; runs with executor local need none": "这里没有 Slurm；执行方式为 local 的任务不需要它",
        "missing: {names}": "缺少：{names}",
        "runs are submitted, watched and ended through Slurm's clients": "任务的提交、看护和结束都要用 Slurm 的客户端命令",
        "install them where the supervisor runs (Debian: apt-get install slurm-client), or put them into PATH": (
            "在运行看护进程的机器上安装（Debian：apt-get install slurm-client），或加入 PATH"
        ),
        "all there": "齐全",
        "does not answer: {why}": "没有应答：{why}",
        "{client} did not answer within {seconds} s": "{client} 在 {seconds} 秒内没有应答",
        "exit code {code}": "退出码 {code}",
        "no run with executor slurm can be submitted; a supervisor that hears nothing does nothing": (
            "执行方式为 slurm 的任务无法提交；看护进程问不到消息时什么也不做"
        ),
        "set SLURM_CONF, start munge, check that this host may talk to the controller": (
            "设置 SLURM_CONF，启动 munge，检查本机能否连到控制器"
        ),
        "answers ({cluster})": "有应答（{cluster}）",
        "a cluster without a name": "集群没有名字",
        "ciuic is tested with 22.05; nothing is known about versions before 20.11": (
            "ciuic 在 22.05 上测试过；20.11 之前的版本没有试过"
        ),
        "try a small run with a killed node first, or upgrade Slurm": "先用小任务试一次杀掉节点，或升级 Slurm",
    }
)

_SLURM_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "PrologFlags has ForceRequeueOnFail": "PrologFlags 中有 ForceRequeueOnFail",
        "{requeue}; ciuic submits with --no-requeue, which wins": "{requeue}；ciuic 提交时带 --no-requeue，以它为准",
        "Slurm then restarts a job by itself although it was submitted with --no-requeue, beside the supervisor's restart": (
            "即使提交时带 --no-requeue，Slurm 也会自己重启作业，与看护进程的重启并行"
        ),
        "ask the administrator to take ForceRequeueOnFail out of PrologFlags": (
            "请管理员从 PrologFlags 中去掉 ForceRequeueOnFail"
        ),
        "so long after SIGTERM everything is killed; evidence of a hang and last lines of logs need longer": (
            "SIGTERM 之后过这么久就会全部杀掉；保存卡住的现场和最后的日志需要更长时间"
        ),
        "{value} (Slurm's default) or more in slurm.conf": "slurm.conf 中设 {value}（Slurm 的默认值）或更大",
        "{value} (Slurm's default) in slurm.conf": "slurm.conf 中设 {value}（Slurm 的默认值）",
        "{value} (Slurm's default) in slurm.conf, at least {least}": (
            "slurm.conf 中设 {value}（Slurm 的默认值），至少 {least}"
        ),
        "{value} or less in slurm.conf": "slurm.conf 中设 {value} 或更小",
        "{value} in slurm.conf": "slurm.conf 中设 {value}",
        "a dead node is never taken out of its job, so a job whose nodes died ends only at its time limit": (
            "死掉的节点永远不会从作业中去掉，这样的作业要到时限才结束"
        ),
        "a node daemon that stalls for a moment costs its node": "节点守护进程稍有停顿就会失去节点",
        "so long a dead node counts as allocated; a replacement from the same partition has to wait for it": (
            "死掉的节点这么久还算占用着；同一分区的替补作业要等它"
        ),
        "a client waits so long for a silent controller; the supervisor gives it up sooner and knows less": (
            "控制器不应答时客户端要等这么久；看护进程会更早放弃，知道得更少"
        ),
        "workers are told to save {seconds} s before the limit (signal_before_limit_s)": (
            "到时限前 {seconds} 秒通知 worker 保存（signal_before_limit_s）"
        ),
        "Slurm sends the signal up to 60 s off its time; a save that takes longer than the rest is lost": (
            "Slurm 发信号的时间最多差 60 秒；在剩下的时间内存不完的检查点就丢了"
        ),
        "[job] signal_before_limit_s: the time of a save plus 120": "[job] signal_before_limit_s 设为保存所需时间加 120",
        "a worker that leaves its process group outlives its job and holds GPU memory": (
            "离开进程组的 worker 会比作业活得更久，占着显存"
        ),
        "a node whose processes die slowly (stuck in a file system or driver) is drained after that": (
            "进程死得慢（卡在文件系统或驱动里）的节点过这么久就会被下线"
        ),
        "no accounting (AccountingStorageType)": "没有记账（AccountingStorageType）",
        "how a job ended is known only until MinJobAge is over; after that the agents' own records must do": (
            "作业怎样结束只有在 MinJobAge 之内问得到；之后只能靠节点代理自己的记录"
        ),
        "run slurmdbd, or keep MinJobAge at 300 or more": "运行 slurmdbd，或让 MinJobAge 保持 300 以上",
        "{said}, questions to Slurm come every {seconds} s": "{said}，每 {seconds} 秒问一次 Slurm",
        "a job that ended is forgotten before its end is certain to be read": "作业结束后还没来得及读到就被忘掉了",
        "accounting is asked then": "那时会去问记账",
        "{what}, and there is no accounting to ask": "{what}，而又没有记账可问",
    }
)

_STORAGE: Mapping[str, str] = MappingProxyType(
    {
        "the runs' directories, journals and checkpoints lie there": "任务目录、运行日志和检查点都在那里",
        "give this user write access, mend the mount, or choose another place with --root": (
            "给这个用户写权限，修好挂载，或用 --root 换一个位置"
        ),
        "{root}: {kind}, local": "{root}：{kind}，本机文件系统",
        "{root}: {kind}, shared": "{root}：{kind}，共享文件系统",
        "{root}: {kind} (is made at the first submission), local": "{root}：{kind}（首次提交时创建），本机文件系统",
        "{root}: {kind} (is made at the first submission), shared": "{root}：{kind}（首次提交时创建），共享文件系统",
        "unknown file system": "文件系统不明",
        "for runs on one machine; nodes of a cluster must all see this directory": (
            "适合单机任务；集群的所有节点都必须能看到这个目录"
        ),
        "it keeps attributes for up to 60 s, so a beat may be seen late; the limits know it": (
            "它缓存属性最长 60 秒，心跳可能看到得晚；各时限已考虑这一点"
        ),
        "a lock that one process holds is not seen by another": "一个进程持有的锁，另一个进程看不到",
        "locks keep two supervisors, and two writers of one journal, apart": (
            "锁用来避免两个看护进程、以及两个写者同时写一份运行日志"
        ),
        "mount with locks (Lustre: -o flock; NFS: without nolock, lockd running)": (
            "挂载时启用锁（Lustre：-o flock；NFS：不要 nolock，并运行 lockd）"
        ),
        "locks work on this host only ({options})": "锁只在本机有效（{options}）",
        "a second supervisor on another host sees the first one's counter only, and takes 60 s to decide": (
            "另一台机器上的第二个看护进程只能看第一个的计数器，要 60 秒才能判断"
        ),
        "mount with locks for the whole cluster (Lustre: -o flock; NFS: without nolock and local_lock)": (
            "挂载时启用全集群的锁（Lustre：-o flock；NFS：不要 nolock 和 local_lock）"
        ),
        "held across processes": "跨进程有效",
        "exclusive creation works": "独占创建有效",
        "a name could be created twice, or no hard link can be made": "同一个名字能创建两次，或不能建硬链接",
        "epochs, claims and generations are names that exactly one process may create": (
            "任期、作业认领和启动序号都是只能由一个进程创建的名字"
        ),
        "use a file system with hard links (NFS, Lustre, GPFS, any local one)": (
            "换用支持硬链接的文件系统（NFS、Lustre、GPFS 或任何本机文件系统）"
        ),
        "{what} takes {ms} ms (median of {n})": "{what}用时 {ms} 毫秒（{n} 次的中位数）",
        "write and fsync of 4 KiB": "写入并 fsync 4 KiB",
        "rename": "改名",
        "each node writes one such file a second, the supervisor several for a restart": (
            "每个节点每秒写一个这样的文件，看护进程重启一次要写几个"
        ),
        "raise [monitor] beat_s, or put the root on a faster file system and only checkpoints on this one": (
            "调大 [monitor] beat_s，或把根目录放到更快的文件系统上，只把检查点放这里"
        ),
        "its server's clock is {seconds} s from ours": "服务器的时钟与本机相差 {seconds} 秒",
        "ciuic compares counters, never clocks; but merged logs are out of order, and munge refuses after 300 s": (
            "ciuic 只比较计数器，不比较时钟；但合并的日志会乱序，相差 300 秒以上 munge 会拒绝"
        ),
        "run chrony or ntpd on both": "两边都运行 chrony 或 ntpd",
        "{size} GiB free": "剩余 {size} GiB",
        "{size}, {n} files more": "{size}，还能建 {n} 个文件",
        "a checkpoint takes about 14 bytes a parameter, and the old one stays until the new one is complete": (
            "检查点每个参数约占 14 字节，新的写完之前旧的不删"
        ),
        "make room, or lower [checkpoint] keep_last": "腾出空间，或减小 [checkpoint] keep_last",
    }
)

_PACKAGES: Mapping[str, str] = MappingProxyType(
    {
        "none as a package; runs without GPUs use Gloo": "没有以软件包安装；没有 GPU 的任务使用 Gloo",
        "no libibverbs.so.1; NCCL then reaches no RDMA device and uses sockets": (
            "没有 libibverbs.so.1；NCCL 用不了 RDMA 设备，改用套接字"
        ),
        "not in this environment; the recipe runs a program of its own": "不在这个环境里；这个配置运行自己的程序",
        "not installed in {place}": "{place} 中没有安装",
        "ciuic's trainer needs it on every node (not where only the supervisor runs)": (
            "ciuic 的训练程序在每个节点上都需要它（只运行看护进程的机器不需要）"
        ),
        "pip install 'ciuic[train]' into the environment that the nodes use": (
            "在节点使用的环境里执行 pip install 'ciuic[train]'"
        ),
        "{version}, {least} or later is wanted": "{version}，需要 {least} 或更新",
        "older versions are not tested with ciuic's trainer": "更旧的版本没有与 ciuic 的训练程序一起测试过",
        "no DeepSpeed here": "这里没有 DeepSpeed",
        "{operator} is built in {place}": "{operator} 已编译在 {place}",
        "{operator} is not built in {place}": "{place} 中没有编译 {operator}",
        "with it the update of offloaded weights runs in DeepSpeed's own kernel; without it torch's is used": (
            "有它，卸载到内存的权重用 DeepSpeed 自己的核函数更新；没有则用 torch 的"
        ),
    }
)

_MACHINE: Mapping[str, str] = MappingProxyType(
    {
        "the kernel does not tell whether the clock is synchronised": "内核不说明时钟是否已同步",
        "synchronised": "已同步",
        "not synchronised": "没有同步",
        "munge, and with it Slurm, refuses hosts that are 300 s apart; merged logs are out of order": (
            "主机时钟相差 300 秒时 munge 会拒绝，Slurm 也就不通；合并的日志会乱序"
        ),
        "run chrony, ntpd or systemd-timesyncd (a container takes its host's clock: look there)": (
            "运行 chrony、ntpd 或 systemd-timesyncd（容器使用宿主机的时钟：请到那里检查）"
        ),
        "reads the stacks of a running process": "能读取运行中进程的调用栈",
        "{what}, Yama's ptrace_scope is {scope}": "{what}，Yama 的 ptrace_scope 是 {scope}",
        "without stacks the evidence of a hang is what a worker can still write by itself": (
            "读不到调用栈时，卡住的现场只有 worker 自己还能写下的内容"
        ),
        "a container needs the capability SYS_PTRACE": "容器需要 SYS_PTRACE 能力",
        "py-spy is not installed": "没有安装 py-spy",
        "{found}, wanted {wanted}": "现为 {found}，应为 {wanted}",
        "cannot be read ({why})": "读不到（{why}）",
    }
)

_OUTSIDE: Mapping[str, str] = MappingProxyType(
    {
        "[alerts] names no receiver": "[alerts] 中没有接收方",
        "nobody will be told anything": "不会通知任何人",
        "make a group robot and name its key's variable in [alerts.wecom]": (
            "新建一个群机器人，在 [alerts.wecom] 中写明存放其 key 的变量"
        ),
        "delivered": "已送达",
        "not delivered: {why}": "未送达：{why}",
        "alerts would not arrive either": "告警也到不了",
        "the recipe asks for no copies of checkpoints": "这个配置没有要求复制检查点",
        "checkpoints exist on one file system only until this works": "在它可用之前，检查点只存在于一个文件系统上",
        "check [mirror] or [backup], the label ciuic.io/checkpoint-path, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY": (
            "检查 [mirror] 或 [backup]、标签 ciuic.io/checkpoint-path，以及 AWS_ACCESS_KEY_ID 和 AWS_SECRET_ACCESS_KEY"
        ),
        "{place} answers (reading; writing is not tried)": "{place} 有应答（只试了读，没有试写）",
    }
)

_HINTS: Mapping[str, str] = MappingProxyType(
    {
        **dict(HINTS.values()),
        "export {key}=… (the robot's key or its whole URL) where the supervisor starts": (
            "在启动看护进程的地方 export {key}=…（机器人的 key 或完整 URL）"
        ),
        "{url} cannot be reached from here: set HTTPS_PROXY, or proxy in {section}": (
            "从这里连不上 {url}：设置 HTTPS_PROXY，或 {section} 中的 proxy"
        ),
        "look the answer up in the service's manual": "在该服务的手册中查这个应答",
        "alerts are not configured (set {key})": "没有配置告警接收方（请设置 {key}）",
    }
)

FINDINGS = Book(
    _HINTS, _REPORT, _SLURM, _SLURM_SETTINGS, _STORAGE, _PACKAGES, _MACHINE, _OUTSIDE, *node.PAGES
)
