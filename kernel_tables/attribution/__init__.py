"""From columns to relations: activities, their launches, the ranges of each launch, paths of names."""
