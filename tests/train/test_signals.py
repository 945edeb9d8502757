import os
import signal
import threading

import pytest

from kitae.train.signals import StopRequested, StopSignals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_and_raised_only_by_check(number, capfd):
    with StopSignals() as stop:
        stop.check()
        os.kill(os.getpid(), number)
        with pytest.raises(StopRequested, match=number.name):
            stop.check()
        with pytest.raises(StopRequested):
            stop.check()
    assert f"{number.name}: saving" in capfd.readouterr().err


def test_a_second_interrupt_is_one_at_once():
    with StopSignals():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_after_a_sigterm_still_lets_it_save():
    with StopSignals():
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)


def test_handlers_are_given_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(ValueError), StopSignals():
        raise ValueError
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_outside_the_main_thread_nothing_is_installed():
    found = []

    def work():
        with StopSignals() as stop:
            stop.check()
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [before]
