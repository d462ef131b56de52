"""How near each part of the forward pass comes to the peaks of the device."""
