"""Which variables of this process go to a head node."""

from kitae.launch.ssh.tokens import OF_TRACKERS, tokens_text
from kitae.train.tracking.table import TRACKERS

HERE = {
    "HF_TOKEN": "hf x",
    "WANDB_API_KEY": "w'w",
    "MLFLOW_TRACKING_URI": "http://m",
    "PATH": "/bin",
    "A": "",
}


def test_a_tracker_takes_its_login_along_only_where_the_recipe_names_it():
    assert tokens_text((), HERE) == "export HF_TOKEN='hf x'\n"
    assert tokens_text(["wandb"], HERE) == "export HF_TOKEN='hf x'\nexport WANDB_API_KEY='w'\"'\"'w'\n"
    assert tokens_text(["tensorboard", "mlflow"], HERE).endswith("export MLFLOW_TRACKING_URI=http://m\n")


def test_without_tokens_there_is_nothing_to_hide():
    assert tokens_text(list(TRACKERS), {"WANDB_API_KEY": ""}) == ""
    assert set(OF_TRACKERS) <= set(TRACKERS)
