"""Pure JAX transitions and formulas of noise-aware inference, each usable alone.

Single-chain semantics everywhere: arrays without a batch axis in, arrays without a batch axis out; use
`jax.vmap` for many chains (see `batching` for why that is fast). Nothing here does I/O, holds state or
imports the rest of the library.
"""
