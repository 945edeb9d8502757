"""`kitae doctor --chip-test`: what only somebody with the machine can try, on one page to send back."""
