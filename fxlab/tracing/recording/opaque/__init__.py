"""Parts of a model that become one call of its graph: found, and recorded as opaque."""
