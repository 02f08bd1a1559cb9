"""Work is put into the queue from the page; what is wrong is told beside its field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from web.axe import find_barriers

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Site


def wait_for_error(page: Page, field: str, text: str) -> None:
    page.locator(f"#{field}-error", has_text=text).wait_for()
    assert page.locator(f"#{field}").get_attribute("aria-invalid") == "true"


def open_form(site: Site, name: str) -> Page:
    page = site.tab(f"/submit?form={name}")
    page.wait_for_selector(f"#{name}-cwd")
    page.fill(f"#{name}-cwd", str(site.queue.work))
    return page


def test_one_job_is_added_with_all_options(site: Site) -> None:
    page = open_form(site, "job")
    page.fill("#job-command", "sleep 100")
    page.fill("#job-name", "<b>bold</b>".replace("/", ""))
    page.fill("#job-log", "own.log")
    page.fill("#job-project", "lab")
    page.fill("#job-gpus", "2")
    page.fill("#job-gpu_mem_bytes", "1.5G")
    page.fill("#job-cpus", "1")
    page.fill("#job-mem_bytes", "64M")
    page.fill("#job-priority", "-3")
    page.fill("#job-timeout_s", "1h30m")
    page.fill("#job-retries", "2")
    page.check("#job-hold")
    page.get_by_role("button", name="Add job").click()
    page.get_by_text("is in the queue").wait_for()
    job = site.queue.show()
    assert (job["line"], job["name"], job["project"]) == ("sleep 100", "<b>bold<b>", "lab")
    assert (job["gpus"], job["priority"], job["timeout_s"]) == (2, -3, 5400)
    assert (job["gpu_mem_bytes"], job["cpus"], job["mem_bytes"]) == (3 << 29, 1, 64 << 20)
    assert (job["retries"], job["state"]) == (2, "held")
    assert (job["cwd"], job["log"]) == (str(site.queue.work), str(site.queue.work / "own.log"))
    assert job["env"]["PATH"]


def test_a_job_that_is_added_runs_in_the_environment_of_the_daemon(site: Site) -> None:
    page = open_form(site, "job")
    page.fill("#job-command", "echo $HOME > home\npwd > here")
    page.fill("#job-gpus", "0")
    page.get_by_role("button", name="Add job").click()
    site.queue.until(lambda: site.queue.stoker.read("here"), "it has run")
    assert site.queue.stoker.read("home") == [site.queue.env["HOME"]]
    assert site.queue.stoker.read("here") == [str(site.queue.work)]
    assert site.queue.show()["script"]


def test_errors_of_a_job_are_shown_beside_their_fields_and_nothing_is_added(site: Site) -> None:
    page = open_form(site, "job")
    add = page.get_by_role("button", name="Add job")
    page.fill("#job-timeout_s", "5")
    page.fill("#job-gpus", "many")
    page.fill("#job-cpus", "0")
    page.fill("#job-mem_bytes", "lots")
    add.click()
    wait_for_error(page, "job-command", "no command was given")
    wait_for_error(page, "job-timeout_s", "5s, 5m or 5h")
    wait_for_error(page, "job-gpus", "whole number")
    wait_for_error(page, "job-cpus", "whole number")
    wait_for_error(page, "job-mem_bytes", "10G")
    page.fill("#job-command", "true")
    page.fill("#job-timeout_s", "")
    page.fill("#job-gpus", "9")
    page.fill("#job-cpus", "")
    page.fill("#job-mem_bytes", "900T")
    add.click()
    wait_for_error(page, "job-gpus", "this queue has 2")
    page.fill("#job-gpus", "1")
    add.click()
    wait_for_error(page, "job-mem_bytes", "this machine has")
    page.fill("#job-mem_bytes", "")
    page.fill("#job-name", "two words")
    add.click()
    wait_for_error(page, "job-name", "contains a blank")
    page.fill("#job-name", "")
    page.fill("#job-after", "77")
    add.click()
    wait_for_error(page, "job-after", "77")
    page.fill("#job-after", "")
    page.fill("#job-cwd", "/does/not/exist")
    add.click()
    wait_for_error(page, "job-cwd", "there is no folder")
    assert site.queue.states() == {}


def test_a_batch_of_lines_is_shown_before_it_is_added(site: Site) -> None:
    page = open_form(site, "batch")
    page.fill("#batch-gpus", "0")
    page.fill("#batch-text", "echo one\n# no job\n\necho <script>alert(1)</script> \\\n  two\n")
    page.get_by_role("button", name="Add 2 jobs").wait_for()
    assert page.locator(".preview li").all_inner_texts()[1].startswith("echo <script>alert(1)")
    assert site.queue.states() == {}
    page.get_by_role("button", name="Add 2 jobs").click()
    page.get_by_text("are in the queue").wait_for()
    added = sorted(site.queue.ls("-a").items())
    assert [job["command"][:8] for _id, job in added] == ["echo one", "echo <sc"]
    page.get_by_text(f"Jobs {added[0][0]} to {added[1][0]} are in the queue").wait_for()


def test_a_batch_of_gpupeasy_is_added_whole_or_not_at_all(site: Site) -> None:
    page = open_form(site, "batch")
    page.fill("#batch-gpus", "0")
    page.fill(
        "#batch-text", "a;;a.log;;echo a;;;\nb;;b.log;;;\nc;;/does/not/exist/c.log;;echo c;;;"
    )
    page.locator(".preview .bad li").nth(1).wait_for()
    page.locator("form button[type=submit]").click()
    wait_for_error(page, "batch-text", "nothing was added")
    assert site.queue.states() == {}
    page.fill("#batch-text", "a;;a.log;;echo a;;;\nb;;b.log;;echo b;;;")
    page.get_by_role("button", name="Add 2 jobs").click()
    page.get_by_text("are in the queue").wait_for()
    assert {job["name"] for job in site.queue.ls("-a").values()} == {"a", "b"}
    site.queue.until(lambda: site.queue.stoker.read("b.log") == ["b"])


def test_a_sweep_is_previewed_while_typing_and_then_queued(site: Site) -> None:
    page = open_form(site, "sweep")
    page.fill("#sweep-text", "echo {lr} {opt}")
    page.fill("#sweep-words", "lr=1,2,3\nopt=sgd,'<i>adam</i>'")
    page.get_by_role("button", name="Queue 6 runs").wait_for()
    assert page.locator(".preview tbody tr").count() == 6
    assert "<i>adam</i>" in page.locator(".preview tbody tr").nth(1).inner_text()
    assert site.queue.states() == {}
    page.fill("#sweep-gpus", "0")
    page.fill("#sweep-name", "first")
    page.get_by_role("button", name="Queue 6 runs").click()
    page.get_by_text("6 runs in the queue, jobs").wait_for()
    added = site.queue.ls("-a")
    assert {job["project"] for job in added.values()} == {"first"}
    page.get_by_text(f"6 runs in the queue, jobs {min(added)} to {max(added)}").wait_for()
    page.get_by_role("link", name="See the sweep").click()
    page.get_by_role("heading", name="first").wait_for()


def test_a_form_says_when_its_runs_would_start_and_whom_they_would_delay(site: Site) -> None:
    site.queue.ok("add", "-P", "vision", "sleep 1.2")
    site.queue.ok("wait")
    site.queue.ok("pause", "--queue")
    (site.queue.work / "batch").write_text("sleep 1.2\n" * 60)
    site.queue.ok("add", "-P", "vision", "--batch", "batch")
    page = open_form(site, "sweep")
    page.fill("#sweep-text", "sleep {s}")
    page.fill("#sweep-words", "s=1,2,3")
    told = page.get_by_role("region", name="What if")
    expect(told).to_contain_text(re.compile(r"starts in ~\d+s, done ~\d\d:\d\d"))
    expect(told).to_contain_text("once it is resumed")
    expect(told).not_to_contain_text("delays")
    expect(told.get_by_role("img")).to_have_attribute("aria-label", re.compile("are expected"))
    page.fill("#sweep-priority", "5")
    page.fill("#sweep-words", "s=range(60)")
    expect(told).to_contain_text(re.compile(r"starts now, .*delays project vision by"))
    assert find_barriers(page) == []
    told.get_by_label("GPUs each").fill("2")
    expect(page.locator("#sweep-gpus")).to_have_value("2")
    page.fill("#sweep-words", "s=1,2,3")
    page.get_by_label("Share GPUs").select_option("never")
    page.get_by_role("button", name="Queue 3 runs").click()
    page.get_by_text("3 runs in the queue, jobs").wait_for()
    job = site.queue.show()
    assert (job["gpus"], job["share"], job["priority"]) == (2, None, 5)
    page.goto(f"{site.url}#/submit?form=job")
    page.fill("#job-command", "sleep 1")
    expect(told).to_contain_text(re.compile(r"starts in ~\d+s, done ~"))


def test_errors_of_a_sweep_are_shown_beside_their_fields(site: Site) -> None:
    page = open_form(site, "sweep")
    page.fill("#sweep-text", "echo {lr}")
    page.fill("#sweep-words", "lr=1,,2")
    wait_for_error(page, "sweep-words", "a value is missing")
    page.fill("#sweep-words", "lr=1,2\nbs=3")
    wait_for_error(page, "sweep-text", "bs")
    page.get_by_label("YAML").check()
    page.fill("#sweep-text", "command: echo {lr}\nparameter:\n  lr: [1, 2]\n")
    wait_for_error(page, "sweep-text", "sweep.yaml:2: unknown key 'parameter'")
    page.fill("#sweep-text", "command: echo {lr}\nparameters:\n  lr: range(1000000000)\n")
    wait_for_error(page, "sweep-text", "more than can be queued")
    page.fill("#sweep-samples", "none")
    wait_for_error(page, "sweep-samples", "whole number")
    assert site.queue.states() == {}
