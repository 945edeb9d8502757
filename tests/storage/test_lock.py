"""One writer at a time."""

import threading

from kitae.storage import lock


def test_lock_is_held_once(tmp_path):
    with (
        lock.exclusive(tmp_path / ".lock") as first,
        lock.exclusive(tmp_path / ".lock", wait=False) as second,
    ):
        assert (first, second) == (True, False)
    with lock.exclusive(tmp_path / ".lock", wait=False) as again:
        assert again


def test_a_second_saver_waits_for_the_first(tmp_path):
    order = []

    def second():
        with lock.exclusive(tmp_path / ".lock") as held:
            order.append(("second", held))

    thread = threading.Thread(target=second)
    with lock.exclusive(tmp_path / ".lock") as held:
        thread.start()
        thread.join(0.05)
        order.append(("first", held))
    thread.join()
    assert order == [("first", True), ("second", True)]


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with lock.exclusive(tmp_path / ".lock") as held:
        assert not held


def test_waiting_is_said_only_when_there_is_somebody_to_wait_for(tmp_path):
    said = []
    with lock.exclusive(tmp_path / "new" / ".lock", waiting=lambda: said.append("no")):
        pass
    first = lock.exclusive(tmp_path / ".lock")
    first.__enter__()

    def release():
        said.append("waits")
        first.__exit__(None, None, None)

    with lock.exclusive(tmp_path / ".lock", waiting=release) as held:
        assert held
    assert said == ["waits"]


def test_who_holds_it_is_told_without_taking_it(tmp_path):
    path = tmp_path / "lock"
    assert lock.is_held(path) is None
    assert not path.exists()
    with lock.exclusive(path) as held:
        assert held
        assert lock.is_held(path) is True
    assert lock.is_held(path) is False


def test_nobody_can_tell_without_locks(tmp_path, monkeypatch):
    (tmp_path / "lock").touch()
    monkeypatch.setattr("fcntl.flock", _no_locks)
    assert lock.is_held(tmp_path / "lock") is None


def _no_locks(*given):
    raise OSError(95, "Operation not supported")
