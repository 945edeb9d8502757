import pytest
import torch
from tiny_decoders import CASES, positions, random_ids, reference, same_in_kitae


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_transformers(case):
    """T05: three prompts, fp32, at most 1e-5 apart; the longest needs several query blocks."""
    model = reference(case)
    decoder = same_in_kitae(model)
    for length in (1, 40, 150):
        ids = random_ids(2, length)
        with torch.no_grad():
            ours = decoder.logits(decoder(ids, positions(ids)))
            theirs = model(ids).logits
        assert theirs.std() > 0.1
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", ["llama3.1", "mistral-window", "qwen3-window"])
def test_segments_are_separate_documents(case):
    """Packed documents with restarting positions give what transformers gives for each alone."""
    model = reference(case)
    decoder = same_in_kitae(model)
    lengths = (20, 1, 140)
    ids = random_ids(1, sum(lengths))
    segments = torch.repeat_interleave(torch.tensor([1, 2, 3]), torch.tensor(lengths))[None]
    places = torch.cat([torch.arange(length) for length in lengths])[None]
    with torch.no_grad():
        packed = decoder.logits(decoder(ids, places, segments)).split(lengths, 1)
        for ours, document in zip(packed, ids.split(lengths, 1), strict=True):
            torch.testing.assert_close(ours, model(document).logits, rtol=0, atol=1e-5)


def test_gradients_equal_those_of_transformers():
    """Every parameter's gradient, through the written-out backward passes, biases and q/k norms too."""
    for case in ("llama-biases", "qwen3-window", "smollm2"):
        model = reference(case)
        decoder = same_in_kitae(model)
        ids = random_ids(2, 140)
        weights = torch.randn(2, 140, 99, generator=torch.Generator().manual_seed(5)) / 100
        (decoder.logits(decoder(ids, positions(ids))) * weights).sum().backward()
        (model(ids).logits * weights).sum().backward()
        theirs = {name: parameter.grad for name, parameter in model.named_parameters()}
        ours = dict(decoder.named_parameters())
        for layout in decoder.layouts:
            sizes = [piece.local_shape[0] for piece in layout.pieces]
            for piece, gradient in zip(layout.pieces, ours[layout.name].grad.split(sizes), strict=True):
                torch.testing.assert_close(gradient, theirs[piece.tensor], rtol=1e-4, atol=1e-5)


def test_norms_are_not_swapped():
    """T09: each norm filled with its own constant gives the reference's logits, and swapped ones do not."""
    model = reference("llama3")
    with torch.no_grad():
        for index, layer in enumerate(model.model.layers):
            layer.input_layernorm.weight.fill_(0.5 + index)
            layer.post_attention_layernorm.weight.fill_(2.0 + index)
    decoder = same_in_kitae(model)
    ids = random_ids(1, 12)
    with torch.no_grad():
        theirs = model(ids).logits
        torch.testing.assert_close(decoder.logits(decoder(ids, positions(ids))), theirs, rtol=0, atol=1e-5)
        for layer in decoder.layers:
            layer.attention_norm, layer.mlp_norm = layer.mlp_norm, layer.attention_norm
        assert (decoder.logits(decoder(ids, positions(ids))) - theirs).abs().max() > 0.1
