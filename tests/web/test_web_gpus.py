"""The strips of the GPUs."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from stoker.testing.state import GIB

if TYPE_CHECKING:
    from web.conftest import Site


def test_a_strip_shows_jobs_other_processes_and_actions(site: Site) -> None:
    page = site.tab("/gpus")
    card = page.locator("[data-gpu='1']")
    expect(card.get_by_text("free")).to_be_visible()
    jobs = [site.queue.add("-N", f"fit-{number}", "sleep", "60") for number in range(2)]
    expect(page.get_by_role("link", name=f"job {jobs[0]} fit-0")).to_be_visible()
    block = card.get_by_role("link", name="fit-1, 0 B of 8.0 GiB set aside")
    expect(block).to_be_visible()
    site.queue.stoker.box.use(os.getpid(), 1, 2 * GIB)
    expect(card.get_by_text(f"pid {os.getpid()}, 2.0 GiB")).to_be_visible()
    expect(card.locator(".number.memory")).to_have_text("Memory 2.0 GiB of 8.0 GiB")
    expect(card.locator(".block.other")).to_be_visible()
    site.queue.stoker.box.release(os.getpid())
    card.get_by_role("button", name="Drain").click()
    expect(card.get_by_role("button", name="Enable")).to_be_visible()
    assert [slot["drained"] for slot in site.slots()] == [None, "drained"]
    card.get_by_role("button", name="Enable").click()
    expect(card.get_by_role("button", name="Drain")).to_be_visible()
    assert [slot["drained"] for slot in site.slots()] == [None, None]
    site.queue.ok("kill", "--all")


def test_the_curves_grow_while_the_page_is_open_and_no_job_runs(site: Site) -> None:
    page = site.tab("/gpus")
    page.wait_for_selector("[data-gpu='0'] canvas")
    page.wait_for_function(
        """() => [...document.querySelectorAll("[data-gpu='0'] canvas")].every((canvas) =>
             canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
               .data.some((value) => value > 0))"""
    )


def test_gpus_are_removed_from_the_queue_and_added_again(site: Site) -> None:
    page = site.tab("/gpus")
    card = page.locator("[data-gpu='1']")
    job = site.queue.add("-N", "last", "sleep", "60")
    card.get_by_role("button", name="Remove").click()
    expect(card.get_by_text("not in this queue")).to_be_visible()
    assert [slot["label"] for slot in site.slots()] == ["0"]
    card.get_by_role("button", name="Add").click()
    expect(card.get_by_role("button", name="Drain")).to_be_visible()
    assert [slot["label"] for slot in site.slots()] == ["0", "1"]
    site.queue.ok("kill", str(job))


def test_a_gpu_is_added_by_its_name_and_a_wrong_name_is_reported(site: Site) -> None:
    page = site.tab("/gpus")
    field = page.get_by_label("Add a GPU to the queue")
    field.fill("99")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".toast.refused")).to_contain_text("99")
    site.queue.ok("gpus", "remove", "1")
    field.fill("1")
    field.press("Enter")
    expect(page.locator(".toast.done")).to_contain_text("GPU 1 is in use")
    expect(field).to_have_value("")
    assert [slot["label"] for slot in site.slots()] == ["0", "1"]


def test_the_blocks_of_jobs_that_share_a_gpu_show_use_and_what_is_set_aside(site: Site) -> None:
    site.queue.ok("gpus", "drain", "1")
    train = (sys.executable, "-m", "stoker.testing.train", "--seconds", "600", "--steps", "2")
    words = (
        "--share",
        "auto",
        "--gpu-mem",
        "3G",
        "-N",
        "half",
        *train,
        "--mem",
        "2G",
        "--sm",
        "20",
    )
    jobs = [site.queue.add(*words) for _ in range(2)]
    page = site.tab("/gpus")
    blocks = page.locator("[data-gpu='0'] .blocks li")
    for job in jobs:
        name = f"job {job} half, 2.0 GiB of 3.0 GiB set aside"
        expect(page.get_by_role("link", name=name)).to_be_visible()
    widths = blocks.evaluate_all("all => all.map(each => each.style.width)")
    assert widths == ["37.5%", "37.5%"]
    expect(blocks.first.locator(".fill")).to_have_attribute("style", re.compile("width: 66.6"))
    page.get_by_role("link", name=f"job {jobs[1]} half").click()
    expect(page.get_by_role("heading", name=f"Job {jobs[1]}")).to_be_visible()
    site.queue.ok("gpus", "add", "1")


def test_an_idle_gpu_names_the_waiting_job_that_it_is_kept_for(own_site: Site) -> None:
    site = own_site
    site.queue.add("sleep", "600")
    large = site.queue.add("--gpus", "2", "sleep", "600")
    page = site.tab("/gpus")
    expect(page.get_by_role("link", name=f"kept for job {large}")).to_be_visible()
