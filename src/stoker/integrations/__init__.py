"""Stoker behind the interfaces of other tools: Hydra's launchers and submitit's executors."""
