"""From columns to what belongs together: activities, their launches, the ranges of each launch, paths of names."""
