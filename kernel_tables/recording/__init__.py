"""Recording any program: `inside` is what runs in its processes, the rest is the command around it."""
