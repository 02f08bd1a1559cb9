"""Endpoints with work of their own beside the service: streams, and GPUPeasy's routes."""
