"""Copies of an emulated cluster's state, so that one installation serves many tests."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import dataclass

from tests.support.emulated_cluster.operator import Operator


@dataclass(frozen=True)
class Snapshot:
    """The objects, their log, the kubelets' counters and the logs of the pods."""

    content: bytes

    @classmethod
    def of(cls, operator: Operator) -> Snapshot:
        store, kubelet = operator.store, operator.kubelet
        with store.lock:
            number = next(kubelet.numbers)
            kubelet.numbers = itertools.count(number)
            of_store = (store.objects, store.log, store.version)
            serving = (kubelet.routing.served_since, kubelet.routing.now)
            state = (*of_store, kubelet.logs, kubelet.steps, number, serving)
            return cls(pickle.dumps(state))

    def restore(self, operator: Operator) -> None:
        """Replace the state of a cluster that has no clients yet."""
        store, kubelet = operator.store, operator.kubelet
        with store.lock:
            state = pickle.loads(self.content)
            store.objects, store.log, store.version, logs, kubelet.steps, number, serving = state
            kubelet.routing.served_since, kubelet.routing.now = serving
            kubelet.logs.update(logs)
            kubelet.numbers = itertools.count(number)
            store.lock.notify_all()
