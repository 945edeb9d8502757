"""Graphs that a lazy compiler makes of a training: which there are, and whether their artefacts are there.

`entries` and `cache_*` read compilers' caches, `compile_log` and `result` what a compiler said, `graphs` what
a run or a trial needs, `answer` compares the two. `drive` runs neuron_parallel_compile. `why_miss` names in
what two keys differ; `archive` and `prune` look after caches.
"""
