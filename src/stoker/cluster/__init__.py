"""Membership of a cluster: settings, tokens, certificates, and the Ray processes of this box."""
