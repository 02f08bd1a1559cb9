from __future__ import annotations

import os
import time
from pathlib import Path

from stoker.engine.framework_settings import (
    jax_cache,
    limit_threads,
    remove_unused_programs,
    share_gpu,
)


def test_runs_of_jax_keep_what_they_compile_in_the_users_cache(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    share_gpu(env)
    assert env["JAX_COMPILATION_CACHE_DIR"] == f"{tmp_path}/.cache/stoker/jax"
    assert env["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_variables_of_the_user_stay(tmp_path: Path) -> None:
    own = {"HOME": str(tmp_path), "JAX_COMPILATION_CACHE_DIR": "/mine"}
    share_gpu(own)
    assert own["JAX_COMPILATION_CACHE_DIR"] == "/mine"
    assert "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in own
    added: dict[str, str] = {}
    share_gpu(added, {"HOME": str(tmp_path), "TF_FORCE_GPU_ALLOW_GROWTH": "false"})
    assert added["JAX_COMPILATION_CACHE_DIR"] == f"{tmp_path}/.cache/stoker/jax"
    assert "TF_FORCE_GPU_ALLOW_GROWTH" not in added


def test_libraries_get_a_number_of_threads_unless_the_user_has_set_one() -> None:
    env: dict[str, str] = {}
    limit_threads(env, 6)
    assert env == {"OMP_NUM_THREADS": "6", "TF_NUM_INTRAOP_THREADS": "6"}

    own = {"OMP_NUM_THREADS": "2", "TF_NUM_INTRAOP_THREADS": ""}
    limit_threads(own, 6)
    assert own == {"OMP_NUM_THREADS": "2", "TF_NUM_INTRAOP_THREADS": ""}
    added: dict[str, str] = {}
    limit_threads(added, 6, own)
    assert added == {}


def test_a_job_alone_on_its_machine_starts_as_many_threads_as_it_likes() -> None:
    env: dict[str, str] = {}
    limit_threads(env, None)
    assert env == {}


def test_without_a_home_folder_nothing_is_kept(tmp_path: Path) -> None:
    assert jax_cache({}) is None
    assert jax_cache({"HOME": "relative"}) is None
    assert jax_cache({"HOME": str(tmp_path / "gone")}) is None
    assert jax_cache({"HOME": str(tmp_path), "XDG_CACHE_HOME": "/c"}) == "/c/stoker/jax"


def test_only_programs_that_nobody_reads_are_removed(tmp_path: Path) -> None:
    remove_unused_programs(str(tmp_path / "missing"))
    ages = {"new": 1.0, "old": 40 * 86400.0}
    for name, age_s in ages.items():
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    (tmp_path / "link").symlink_to(tmp_path / "new")
    remove_unused_programs(str(tmp_path))
    assert {each.name for each in tmp_path.iterdir()} == {"new", "link"}
