"""The words of alerts and stories, Chinese first. Data only."""

from collections.abc import Mapping
from types import MappingProxyType

Words = Mapping[str, tuple[str, str]]  # key → (Chinese, English)

CAUSES: Words = MappingProxyType(
    {
        "comm-timeout": ("通信超时", "communication timed out"),
        "comm-peer": ("对端断开", "a peer went away"),
        "rendezvous": ("节点未能会合", "the nodes did not find each other"),
        "port": ("端口被占用", "port in use"),
        "network": ("网络故障", "network"),
        "gpu-oom": ("GPU 显存不足", "out of GPU memory"),
        "gpu-hardware": ("GPU 硬件故障", "GPU hardware"),
        "gpu-error": ("GPU 错误", "GPU error"),
        "host-oom": ("内存不足", "out of host memory"),
        "disk-full": ("磁盘已满", "disk full"),
        "filesystem": ("文件系统故障", "file system"),
        "dataloader": ("数据加载进程失败", "data loader"),
        "config": ("配置错误", "configuration error"),
        "import": ("导入失败", "import failed"),
        "data": ("数据错误", "data"),
        "checkpoint": ("检查点读写失败", "a checkpoint could not be read or written"),
        "traceback": ("程序异常", "exception"),
        "nan": ("数值异常（NaN/Inf）", "numbers not finite"),
        "loss-spike": ("损失突增", "loss spike"),
        "slow": ("变慢", "slow"),
        "loss-scale": ("损失缩放过低", "loss scale"),
        "preempted": ("被抢占", "preempted"),
        "time-limit": ("作业到达时限", "time limit"),
        "node-failure": ("节点失联", "node lost"),
        "launch": ("启动失败", "launch failed"),
        "cancelled": ("作业被取消", "cancelled"),
        "signal": ("进程被信号杀死", "killed by a signal"),
        "hang": ("卡住", "hang"),
        "unexplained": ("原因不明", "unexplained"),
        "none": ("无", "none"),
    }
)

FIXES: Words = MappingProxyType(
    {
        "gpu-oom": (
            "减小 batch.micro_batch_size 或 data.sequence_length，或增加 GPU。",
            "Lower batch.micro_batch_size or the sequence length, or use more GPUs.",
        ),
        "host-oom": (
            "减少每节点进程或数据加载的内存，或申请更多内存。",
            "Use less host memory per node, or ask the partition for more.",
        ),
        "disk-full": (
            "清理磁盘或提高配额，然后 ciuic resume。",
            "Free space or raise the quota, then `ciuic resume`.",
        ),
        "config": (
            "按提示修改配置后重新提交。",
            "Correct the configuration as the message says, and submit again.",
        ),
        "import": (
            "检查环境是否装全、版本是否匹配。",
            "Check that the environment is complete and its versions fit.",
        ),
        "checkpoint": (
            "检查共享存储是否已挂载，ciuic checkpoints RUN --verify；确认后 ciuic resume。",
            "Check the shared storage, run `ciuic checkpoints RUN --verify`, then `ciuic resume`.",
        ),
        "nan": (
            '检查学习率和这一步的数据；numerics.on_nan = "roll-back" 会自动回滚并跳过该数据段。',
            'Look at the learning rate and at this step\'s data; numerics.on_nan = "roll-back" goes back and jumps them by itself.',
        ),
        "loss-spike": (
            '检查学习率和这段数据；monitor.on_loss_spike = "rollback" 会自动回滚并跳过该数据段。',
            'Look at the learning rate and this data; monitor.on_loss_spike = "rollback" goes back and jumps it by itself.',
        ),
        "loss-scale": (
            "fp16 的梯度已难以表示：换用 bf16，或降低学习率后从检查点继续。",
            "fp16 can hardly hold these gradients: use bf16, or a lower learning rate from a checkpoint.",
        ),
        "slow": (
            "查看该节点的 GPU 频率、温度、网络和存储；ciuic dump RUN 可取现场。",
            "Look at the node's GPU clocks, heat, network and storage; `ciuic dump RUN` takes evidence.",
        ),
        "traceback": (
            "按异常信息修复程序，然后 ciuic resume。",
            "Fix the program as the exception says, then `ciuic resume`.",
        ),
        "hang": (
            "同一步反复卡住：多半是各 rank 的集合通信不一致，请查看日志。",
            "It hangs at the same step again: ranks probably disagree about a collective; read the logs.",
        ),
        "launch": (
            "查看作业输出和节点状态，然后 ciuic resume。",
            "Read the job's output and look at the nodes, then `ciuic resume`.",
        ),
        "": (
            "查看日志；处理后 ciuic resume。",
            "Read the logs; when it is dealt with, `ciuic resume`.",
        ),
    }
)

# While training goes on.
SAVE_FIXES: Words = MappingProxyType(
    {
        "disk-full": (
            "清理磁盘或提高配额；下一次保存会自动重试，无需重启。",
            "Free space or raise the quota; the next save tries again by itself.",
        ),
        "filesystem": (
            "检查存储的挂载与权限（只读、掉挂载、无响应）；下一次保存会自动重试，无需重启。",
            "Look at the mount (read-only, gone, not answering); the next save tries again by itself.",
        ),
        "host-oom": (
            "主机内存放不下检查点的副本：checkpoint.background = false，或申请更多内存。",
            "The host has no memory for the copy: checkpoint.background = false, or ask for more.",
        ),
        "": (
            "查看日志；下一次保存会自动重试。",
            "Read the logs; the next save tries again by itself.",
        ),
    }
)

PHASES: Words = MappingProxyType(
    {
        "unknown": ("未知阶段", "an unknown phase"),
        "start": ("启动", "start"),
        "compile": ("编译", "compile"),
        "load": ("加载检查点", "load"),
        "data": ("读取数据", "data"),
        "forward": ("前向", "forward"),
        "backward": ("反向", "backward"),
        "optimizer": ("优化器", "optimizer"),
        "evaluate": ("验证", "evaluate"),
        "save": ("保存", "save"),
        "exit": ("退出", "exit"),
        "collective": ("集合通信", "collective"),
    }
)

COPIES: Words = MappingProxyType({"mirror": ("镜像", "mirror"), "backup": ("备份", "backup")})

TROUBLES: Words = MappingProxyType(
    {
        "credentials": ("没有凭证", "no credentials"),
        "refused": ("被拒绝：检查密钥和权限", "refused: check key and permissions"),
        "missing": ("目的地不存在", "the place does not exist"),
        "unreachable": ("无法连接", "cannot be reached"),
        "timeout": (
            "太慢，超过时限（mirror.request_timeout_s）",
            "too slow, past the time limit (mirror.request_timeout_s)",
        ),
        "cut": ("连接被切断", "the connection was cut off"),
        "server": ("对方服务出错", "the service failed"),
        "corrupt": ("内容在传输或存储中损坏", "bytes were damaged on the way or there"),
        "full": ("空间或配额已满", "no space or quota left"),
        "read-only": ("只读", "read-only"),
        "source": ("本地检查点无法读取", "the checkpoint here cannot be read"),
        "library": ("缺少 obstore 库", "the obstore library is missing"),
        "died": ("复制进程异常退出", "the copier died"),
        "behind": ("复制还没有完成：比保存慢", "the copying takes longer than that"),
        "unknown": ("原因不明", "unexplained"),
    }
)

STATES: Words = MappingProxyType(
    {
        "pending": ("排队中", "pending"),
        "starting": ("启动中", "starting"),
        "running": ("训练中", "running"),
        "recovering": ("恢复中", "recovering"),
        "completed": ("已完成", "completed"),
        "failed": ("已失败", "failed"),
        "paused": ("已暂停", "paused"),
        "cancelled": ("已取消", "cancelled"),
        "unknown": ("无法观测", "unknown"),
    }
)

VERDICTS: Words = MappingProxyType(
    {
        "healthy": ("正常", "healthy"),
        "pending": ("排队中", "pending"),
        "starting": ("启动中", "starting"),
        "hung": ("卡住", "hung"),
        "crashed": ("崩溃", "crashed"),
        "node-lost": ("节点失联", "node-lost"),
        "saved": ("已保存", "saved"),
        "ended": ("作业结束", "ended"),
        "refused": ("拒绝训练", "refused"),
        "slow": ("变慢", "slow"),
        "too-slow": ("过慢", "too-slow"),
        "diverging": ("数值异常", "diverging"),
        "diverged": ("数值发散", "diverged"),
        "completed": ("已完成", "completed"),
        "cancelled": ("已取消", "cancelled"),
        "unknown": ("无法观测", "unknown"),
    }
)

JOB_STATES: Words = MappingProxyType(
    {
        "pending": ("排队中", "pending"),
        "running": ("运行中", "running"),
        "ending": ("正在结束", "ending"),
        "held": ("被挂起", "held"),
        "ended-ok": ("正常结束", "ended-ok"),
        "ended-failed": ("失败", "ended-failed"),
        "ended-limit": ("到达时限", "ended-limit"),
        "ended-preempted": ("被抢占", "ended-preempted"),
        "ended-node": ("节点故障", "ended-node"),
        "ended-cancelled": ("已取消", "ended-cancelled"),
        "gone": ("队列中已没有", "gone"),
        "unknown": ("不明", "unknown"),
    }
)

SEVERITIES: Words = MappingProxyType(
    {"info": ("提示", "info"), "warning": ("警告", "warning"), "critical": ("严重", "critical")}
)

REQUESTS: Words = MappingProxyType(
    {
        "pause": ("暂停", "pause"),
        "resume": ("继续", "resume"),
        "cancel": ("取消", "cancel"),
        "dump": ("保存现场", "dump"),
        "set": ("修改设置", "set"),
        "profile": ("性能分析", "profile"),
        "ack": ("确认", "ack"),
        "silence": ("静默", "silence"),
        "unknown": ("（无法理解）", "unknown"),
    }
)


def word(words: Words, key: str, language: str) -> str:
    """The word in this language; the key itself where there is none."""
    found = words.get(key)
    if found is None:
        return key
    return found[0] if language == "zh" else found[1]
