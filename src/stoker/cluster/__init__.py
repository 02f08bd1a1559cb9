"""Several boxes as one: who belongs to the cluster, and the Ray processes that hold it together."""
