import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.data.split import heldout_mask


def digests(texts):
    return [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts]


@settings(deadline=None, max_examples=40)
@given(texts=st.lists(st.text(max_size=3), max_size=40), seed=st.integers(0, 2**63 - 1))
def test_equal_documents_fall_on_one_side_wherever_they_stand(texts, seed):
    mask = heldout_mask(digests(texts), fraction=0.3, seed=seed).tolist()
    alone = {text: bool(heldout_mask(digests([text]), fraction=0.3, seed=seed)[0]) for text in texts}
    assert mask == [alone[text] for text in texts]


def test_share_is_about_the_fraction_and_grows_with_it():
    names = digests(str(n) for n in range(10_000))
    small = heldout_mask(names, fraction=0.05, seed=1)
    large = heldout_mask(names, fraction=0.2, seed=1)
    assert 430 < small.sum() < 570
    assert 1850 < large.sum() < 2150
    assert not (small & ~large).any(), "a larger share holds out the same documents and more"
    assert (heldout_mask(names, fraction=0.2, seed=2) != large).any()
