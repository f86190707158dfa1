"""Training on preference pairs with DPO, mDPO and SymMPO, in the same loop as SCAPO."""
