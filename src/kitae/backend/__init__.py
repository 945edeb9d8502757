"""What a machine must offer, and the table of machines that kitae knows."""
