"""Describe clients of the gateway: the settings that each needs, as data.

`clients/` has a file for each client.  The command `gateway launch` and the page of the clients are made from them.
"""

from gateway.launch.client import CLIENTS, Client, ClientFile, LaunchTarget
from gateway.launch.merging import UnmergeableFile, member_of, merge_entries
from gateway.launch.model_choice import ModelChoice, OfferedModel, choose_model, misfits

__all__ = [
    "CLIENTS",
    "Client",
    "ClientFile",
    "LaunchTarget",
    "ModelChoice",
    "OfferedModel",
    "UnmergeableFile",
    "choose_model",
    "member_of",
    "merge_entries",
    "misfits",
]
