"""What `check` and `submit` say, in Chinese. Data only; the English stands in the commands."""

from collections.abc import Mapping
from types import MappingProxyType

from contract.language import Book

_SUBMISSION: Mapping[str, str] = MappingProxyType(
    {
        "{recipe}: in order: {nodes} × {ranks} workers, executor {executor}": (
            "{recipe}：没有问题：{nodes} × {ranks} 个 worker，执行方式 {executor}"
        ),
        "{place}: no run can be created: {why}": "{place}：无法创建任务：{why}",
        "{run} is created; whether it is in the queue the supervisor finds out: {why}": (
            "{run} 已创建；是否已进入队列由看护进程查明：{why}"
        ),
        "{run} is created, but not in the queue: {why}": "{run} 已创建，但没有进入队列：{why}",
        "the supervisor submits it, directory {path}": "由看护进程提交，目录 {path}",
        "job {job}, directory {path}": "作业 {job}，目录 {path}",
        "waits for Slurm, for {seconds} s at most": "等待 Slurm，最多 {seconds} 秒",
        "an earlier submission of this attempt is still at work": "这次作业先前的一次提交还在进行",
        "the submission gave no answer within {seconds} s": "{seconds} 秒内提交没有应答",
        "the submission could not be started: {why}": "无法启动提交程序：{why}",
        "the submitter ended with {code}: {why}": "提交程序以 {code} 退出：{why}",
        "the submitter gave no reason": "提交程序没有说明原因",
        "no output": "没有输出",
        "it was never handed in": "从未提交",
        "its submission is still at work": "提交仍在进行",
        "no process of it is on this machine": "本机上没有它的进程",
        "it was started on {host}, which cannot be looked at from here": "它在 {host} 上启动，从这里看不到",
        "no job with the comment {tag}": "没有注释为 {tag} 的作业",
        "Slurm gave no answer": "Slurm 没有应答",
    }
)
_DRY_RUN: Mapping[str, str] = MappingProxyType(
    {
        'executor = "local": no sbatch script. On this machine, in the background, through submitit:': (
            'executor = "local"：没有 sbatch 脚本。在本机后台，由 submitit 启动：'
        ),
        "  {n} node agent: {command}": "  {n} 个节点代理：{command}",
        "  {n} node agents: {command}": "  {n} 个节点代理：{command}",
        "  {n} worker: {command}": "  {n} 个 worker：{command}",
        "  {n} workers: {command}": "  {n} 个 worker：{command}",
        "  at most {minutes} min": "  最多 {minutes} 分钟",
    }
)
_PLOT: Mapping[str, str] = MappingProxyType(
    {
        "{kind}, {n} groups, {tokens} tokens": "{kind}，{n} 个参数组，{tokens} 个 token",
        "from {tokens} tokens on the loss speeds annealing up or down ({least} to {most} times); drawn at its usual speed": (
            "从第 {tokens} 个 token 起，退火速度随损失变化（{least} 到 {most} 倍）；图中按常速画"
        ),
    }
)

SUBMISSION = Book(_SUBMISSION, _DRY_RUN, _PLOT)
