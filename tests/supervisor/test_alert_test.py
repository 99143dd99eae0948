"""`ciuic alert-test`: a newcomer sees before the night whether the robot works, and what to do when not."""

import os
import subprocess
import sys

from supervisor.demo.robot import Answer
from tests.supervisor.robots import DingTalkRobot
from tests.supervisor.schemas import check


def alert_test(folder, recipe: str, *options: str, **environment: str) -> subprocess.CompletedProcess:
    path = folder / "recipe.toml"
    path.write_text(recipe)
    return subprocess.run(
        [sys.executable, "-P", "-m", "ciuic", "alert-test", str(path), *options],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


def test_a_working_robot_gets_one_message(tmp_path, robot) -> None:
    recipe = f'[alerts.wecom]\nbase_url = "{robot.url}"\nquiet = "00:00-23:59"\n'
    done = alert_test(tmp_path, recipe, CIUIC_WECOM_KEY=robot.key)
    assert (done.returncode, done.stdout) == (0, "wecom:CIUIC_WECOM_KEY: delivered\n"), done.stderr
    assert len(robot.texts()) == 1
    assert robot.texts()[0].startswith("【ciuic】测试消息：告警通道正常")


def test_each_receiver_says_what_is_wrong_and_what_to_do(tmp_path, robot) -> None:
    with DingTalkRobot(keyword="训练") as ding:
        recipe = (
            f'[[alerts.wecom]]\nbase_url = "{robot.url}"\n[[alerts.wecom]]\nkey_env = "OPS"\n'
            f'[alerts.dingtalk]\nbase_url = "{ding.url}"\n'
        )
        robot.script(Answer(errcode=93000))
        keys = {"CIUIC_WECOM_KEY": robot.key, "CIUIC_DINGTALK_KEY": ding.key}
        done = alert_test(tmp_path, recipe, "--json", **keys)
        assert done.returncode == 1
        found = check("alert-test", done.stdout)["receivers"]
        assert [item["delivered"] for item in found] == [False, False, False]
        assert "copy it again" in found[0]["hint"]
        assert found[1]["reason"] == "set OPS"
        assert "keyword" in found[2]["hint"]
        again = alert_test(tmp_path, recipe.replace("OPS", "CIUIC_X") + 'keyword = "训练"\n', **keys)
        assert "dingtalk:CIUIC_DINGTALK_KEY: delivered" in again.stdout
        for key in keys.values():
            assert key not in done.stdout + done.stderr + again.stdout + again.stderr


def test_a_recipe_that_tells_nobody_is_said(tmp_path) -> None:
    done = alert_test(tmp_path, "[alerts]\nwecom = []\n")
    assert (done.returncode, "names no receiver" in done.stderr) == (1, True)
    done = alert_test(tmp_path, "[alerts]\nwecom = []\n", CIUIC_LANG="zh")
    assert "不会通知任何人" in done.stderr


def test_what_to_do_is_said_in_chinese_too(tmp_path, robot) -> None:
    robot.script(Answer(errcode=93000))
    recipe = f'[alerts.wecom]\nbase_url = "{robot.url}"\n'
    done = alert_test(tmp_path, recipe, "--lang", "zh", CIUIC_WECOM_KEY=robot.key)
    assert (done.returncode, "未送达" in done.stdout, "重新复制" in done.stderr) == (1, True, True)
