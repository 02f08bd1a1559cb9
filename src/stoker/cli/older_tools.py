"""What `stoker help TOOL` tells the users of an older tool: the migration pages in short.

A test looks for every example on the tool's page, whose commands are executed by another test.
"""

from __future__ import annotations

TEXTS = {
    "simple_gpu_scheduler": """\
simple_gpu_scheduler and simple_hypersearch are installed with Stoker and work as they did: same flags, same
lines, same order. Natively:

  stoker run gpu_commands.txt --gpus 0,1,2        a command on each GPU; < becomes an argument
  stoker run gpu_commands.txt --gpus 0+1,2+3      two GPUs for each command, as --gpus 0,1 2,3
  stoker run gpu_commands.txt -j 2 --gpus 0,1     two commands share a GPU, as --gpus 0 0 1 1
  stoker run --shell login                        by your login shell instead of /bin/sh
  stoker run -0 --gpus 0                          commands of several lines, each with a NUL byte behind it

In place of simple_hypersearch; without --print the runs are queued, with -n 5 five of them are drawn:

  stoker sweep --print --method random 'python3 train_dnn.py --lr {lr} --bs {bs}' lr=0.1,0.2 bs=32,64

More: docs/how-to/migrate/simple_gpu_scheduler.md
""",
    "gpu_task_scheduler": """\
The package gpu_task_scheduler is installed with Stoker: scripts that import GPUTaskScheduler, GPUTask and
ConfigManager run as they are. Natively, with test_config as `parameters` and global_config as `fixed`
in a sweep file:

  stoker daemon start --gpus 0,1             "gpu": ["0", "1"]
  stoker daemon restart --gpus 0+1,2+3       "gpu": [["0", "1"], ["2", "3"]]
  stoker sweep -f sweep.yaml                 start(): what has succeeded before is not run again
  stoker sweep -f sweep.yaml --rerun all     "force_rerun": True
  stoker log 1                               worker.log
  stoker results sweep                       in place of a ConfigManager that collects results

In Python: stoker.sweep(MyTask, blocks), with class MyTask(stoker.Task).
More: docs/how-to/migrate/gpu_task_scheduler.md
""",
    "gpupeasy": """\
GPUPeasy's batches and routes are here: a job has a name, a file for its output and a shell command.
startserver.py and startgui.py become:

  stoker daemon start --gpus 0,1,2,3              the server; the first stoker add starts it too
  stoker web                                      the page, on this machine alone; prints its link
  stoker web --host lab1 --port 4004              the page for your network, at GPUPeasy's old port
  stoker add --batch jobs.txt                     NAME;;OUTFILE;;COMMAND;;; per job, known by its ;;;
  stoker add --batch -                            the same, pasted; Ctrl-D ends it
  stoker ls -s failed                             its list of failed jobs; so with waiting and done
  stoker resume --queue                           go on after jobs that all failed alike were paused

Its routes (addnewjob, jobinfo/ID, …) are under /gpupeasy/ of the daemon's socket.
More: docs/how-to/migrate/gpupeasy.md
""",
    "gpulimit": """\
gpulimit, gpulimitc and gpulimit_server are installed with Stoker and take the words you know; stoker ls
shows the same tasks. Ids count from 0 there and from 1 here; priority N there is 5 - N here. Natively:

  stoker add -p 4 sleep 600                          gpulimit add --priority=1 sleep 600
  stoker add -o './{index}.log' python3 main.py      gpulimit add --logpath="./" python3 main.py
  stoker show 1                                      gpulimit show 0
  stoker log 1                                       gpulimit log 0; stoker log daemon: log main
  stoker kill 2                                      gpulimit kill 1
  stoker retry 2                                     gpulimit start 1, if it was killed or has failed
  stoker why 2                                       gpulimit debug 1
  stoker config                                      gpulimit set
  stoker rm -s done                                  gpulimit clean complete

More: docs/how-to/migrate/gpulimit.md
""",
}
