"""The figures of each step for TensorBoard (`curves`) and for services on the network (`services`). No torch in here."""
