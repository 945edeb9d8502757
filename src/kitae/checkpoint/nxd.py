"""A neuronx-distributed (NxD) checkpoint as a source of full Hugging Face tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kitae.checkpoint.coverage import listed
from kitae.checkpoint.gathered import GatheredSource, Holding
from kitae.checkpoint.nxd_detect import States, all_stages, detect_format, qkv_kind, with_order
from kitae.checkpoint.nxd_file import State, open_model_file
from kitae.checkpoint.nxd_folder import NxdFolder, Rank, find_nxd
from kitae.checkpoint.nxd_format import NxdFormat, Order
from kitae.checkpoint.nxd_layout import HEAD, nxd_layouts
from kitae.errors import WeightsError
from kitae.model.config import DecoderConfig
from kitae.model.layouts import decoder_layouts
from kitae.parallel.layout import ParameterLayout

Layouts = Mapping[Rank, list[ParameterLayout]]


class NxdSource(GatheredSource):
    """The tensors of a checkpoint in a folder: of a run, of a tag, or of its `model`.

    WeightsError when files are missing or cut off, when they contradict the configuration or the given order,
    and without a configuration, which such folders don't carry. There is a head among the tensors when there
    is one in the files, tied or not.
    """

    def __init__(self, folder: Path, config: DecoderConfig | None, *, order: Order | None = None) -> None:
        self.found: NxdFolder = find_nxd(folder)
        """Where the files are."""
        self.states: States = {rank: open_model_file(path) for rank, path in self.found.model.items()}
        first = all_stages(self.states, 0)
        if config is None:
            raise WeightsError(_needs_config(self.found, first))
        format, why = detect_format(self.found, first, config)
        held_layouts(self.found, self.states, config, format)
        self.format, order_why = with_order(self.found, self.states, config, format, order)
        self.layouts: Layouts = held_layouts(self.found, self.states, config, self.format)
        """Of what each rank's file holds."""
        self.names = full_names(config)
        self.notes = [f"NxD checkpoint {self.found.folder}: {why}, {order_why}", *self.found.notes]
        """What was found and what told it, and what was passed over."""
        if not any(HEAD in state for state in self.states.values()):
            self.notes.append(f"no file holds {HEAD}: the head is the embedding")
        ranks = sorted(self.states)
        super().__init__((Holding(str(r), self.states[r], self.layouts[r]) for r in ranks), self.names)

    @property
    def step(self) -> int | None:
        """The number in the name of the tag."""
        return self.found.step


def full_names(config: DecoderConfig) -> list[str]:
    """Hugging Face names of a decoder's tensors, a head included, in their usual order."""
    return [piece.tensor for layout in decoder_layouts(config, False)(1, 0) for piece in layout.pieces]


def held_layouts(found: NxdFolder, states: States, config: DecoderConfig, format: NxdFormat) -> Layouts:
    """The layouts of what each rank's file holds, checked against it; any cut into stages is fine."""
    try:
        table = nxd_layouts(config, False, format)
    except WeightsError as error:
        raise WeightsError(f"{found.folder} does not fit its configuration: {error}") from None
    result: dict[Rank, list[ParameterLayout]] = {}
    for tp in range(format.tp_size):
        layouts = {layout.name: layout for pp in range(format.pp_size) for layout in table(tp, pp)}
        files = {rank: state for rank, state in states.items() if rank.tp == tp}
        _check_keys(f"{found.folder}, tp {tp}", {key for state in files.values() for key in state}, layouts)
        for rank, state in files.items():
            result[rank] = [layouts[key] for key in state]
            _check_shapes(found.model[rank], state, result[rank])
    return result


def _needs_config(found: NxdFolder, first: State) -> str:
    _, qkv, _ = qkv_kind(found, first)
    return (
        f"{found.folder} is an NxD checkpoint of tp {found.tp_size}, pp {found.pp_size} and qkv {qkv}; it "
        "carries no config.json, and shapes alone don't tell the heads: name the model's with --config FILE"
    )


def _check_keys(where: str, keys: set[str], layouts: Mapping[str, ParameterLayout]) -> None:
    missing = [name for name in layouts if name not in keys and name != HEAD]
    unknown = sorted(keys - layouts.keys())
    if missing:
        also = f", and unknown ones are there: {listed(unknown, 3)}" if unknown else ""
        raise WeightsError(
            f"{where}: {len(missing)} of {len(layouts)} tensors that the configuration needs are missing: "
            f"{listed(missing)}{also}; is it the model's config.json?"
        )
    if unknown:
        raise WeightsError(
            f"{where}: {len(unknown)} tensors are not part of the model that the configuration describes: "
            f"{listed(unknown)}; is it the model's config.json?"
        )


def _check_shapes(path: Path, state: State, layouts: list[ParameterLayout]) -> None:
    wrong = [
        f"{layout.name} is {state[layout.name].shape}, the configuration needs {layout.shape}"
        for layout in layouts
        if state[layout.name].shape != layout.shape
    ]
    if wrong:
        raise WeightsError(
            f"{path}: {len(wrong)} tensors have another shape: {listed(wrong, 3)}; "
            "is it the model's config.json?"
        )
