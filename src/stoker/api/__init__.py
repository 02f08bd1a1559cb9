"""HTTP interface of the daemon: one route per verb, over the owner's own socket."""
