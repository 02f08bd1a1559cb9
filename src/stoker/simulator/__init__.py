"""Simulator: the sharing policy on simulated GPUs and a simulated clock."""
