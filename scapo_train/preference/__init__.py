"""DPO, mDPO and SymMPO on the same loop."""
