"""Hydra's launcher for Stoker: `python train.py -m hydra/launcher=stoker lr=0.1,0.01`."""
