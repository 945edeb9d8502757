"""Text becomes rows of tokens: readers, normalisation, tokenisation, packing, cursor. No torch in here.

Reading order: `prepare` (the whole way), `sources` and `formats` (what is read), `tokenise` (text to ids),
`pack` and `packed` (ids on disk), `rows` (what a model trains on), `cursor` (in which order). What differs by
objective is an entry in `prepare.PREPARATIONS`: `packing`, `masked` (with `pairs` and `masking`), `labelled`.
"""
