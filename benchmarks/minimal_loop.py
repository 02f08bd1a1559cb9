"""GPU Task Scheduler's steps and nothing else: a thread per GPU, a fresh interpreter per task, no sleeps.

`minimal_loop.py` is the scheduler; `minimal_loop.py PICKLE` is the fresh interpreter.
"""

import os
import pickle
import sys

sys.path.insert(0, os.getcwd())


def main() -> None:
    """Run a task for each instance of config.py, on the GPUs that it names."""
    import subprocess
    import threading

    from config import config  # type: ignore[import-not-found]  # the user's, in this folder
    from my_gpu_task import MyGPUTask  # type: ignore[import-not-found]

    numbers = iter(config["test_config"][0]["number"])
    lock = threading.Lock()

    def work(gpu: str) -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            folder = f"results/number-{number},"
            print(f"gpu{gpu} receives task {folder}", flush=True)
            os.makedirs(folder, exist_ok=True)
            task = MyGPUTask({"number": number}, folder)
            env = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, **task.required_env()}
            path = f"temp/{gpu}.pkl"
            with open(path, "wb") as file:
                pickle.dump(task, file)
            words = [sys.executable, "-u", __file__, path]
            with open(f"{folder}/worker.log", "w") as log:
                subprocess.run(words, env=env, stdout=log, stderr=log, check=True)
            print(f"gpu{gpu} finishes task {folder}", flush=True)

    os.makedirs("temp", exist_ok=True)
    workers = [
        threading.Thread(target=work, args=[gpu]) for gpu in config["scheduler_config"]["gpu"]
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with open(sys.argv[1], "rb") as file:
            pickle.load(file).main()
    else:
        main()
