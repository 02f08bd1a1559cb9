"""The daemon's HTTP interface: one route per verb, over the owner's own socket."""
