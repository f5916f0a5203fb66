"""Each bucket is an array of numpy, and so are its means."""

import numpy as np
import torch
import torch.distributed as dist


def average(gradients, cap_bytes, world_size):
    bucket = []
    for number, gradient in enumerate(gradients, start=1):
        bucket.append(gradient.numpy())
        if sum(one.nbytes for one in bucket) >= cap_bytes or number == len(gradients):
            flat = torch.from_numpy(np.concatenate([one.ravel() for one in bucket]))
            dist.all_reduce(flat)
            places = np.cumsum([one.size for one in bucket])[:-1]
            parts = np.split(flat.numpy() / world_size, places)
            for array, part in zip(bucket, parts, strict=True):
                array[...] = part.reshape(array.shape)
            bucket = []
