"""(l) Why a kernel is slow, and how near it is to the roof."""
