"""The version, for what must not import the whole package."""

VERSION = "0.1.0"
