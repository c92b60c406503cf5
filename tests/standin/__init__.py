"""A GPU that is not there: PyTorch's build for CPUs has a device "cuda", and the driver takes launches.

    a command, run with run_on_stand_in()                  in each of its processes (on_path/sitecustomize.py, hook.py)

    PyTorch ──► torch.cuda       torch_cuda.py  graphs.py  what its build for CPUs has not: streams, events, graphs
       │
       └──────► device "cuda"    device.cc, *.h            tensors in memory that is known; operators run on the CPU,
                     ▲                                     take time on the device's clock, and can be captured
                     │ is it memory of the device?
    dwconv ───► libcuda.so.1     driver.c                  keeps to the driver's rules
                     │ cuLaunchKernel
                     └────────►  launches.py  cubin.py     checked against the cubin's own table, written to a journal
                                 faults.py                 faults that are asked for
                                 computing.py              computed by the reference, or in the simulator of GPUs

The tests in on_gpu/ are for any GPU: without one, test_on_stand_in.py runs them here.

What is true of it, and of a GPU: tensors of the two sides do not mix; a backward pass runs in a thread of its own, on
the stream of its forward pass; a thread has no context until it gets one; while a graph is captured launches are not
computed and nothing may wait; a replay runs launches and operators in order on the memory of then; an illegal access
breaks the process. What is not: everything is done at once, in the order in which it was asked for, so a missing
synchronisation is not seen; times are made up, the same on every machine; there is one device.
"""
