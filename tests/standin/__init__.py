"""A GPU that is not there: PyTorch's build for CPUs has a device "cuda", and the driver takes launches.

    a command, run with run_on_stand_in()                  in each of its processes (on_path/sitecustomize.py, hook.py)

    PyTorch ──► torch.cuda       torch_cuda.py  graphs.py  missing from its build for CPUs: streams, events, graphs
       │    └─► torch.profiler   profiler.py               the device's part: which kernels ran, and for how long
       │
       └──────► device "cuda"    device.cc, *.h            tensors in known memory; operators run on the CPU,
                     ▲                                     take time on the device's clock, and can be captured
                     │ is it memory of the device?
    dwconv ───► libcuda.so.1     driver.c                  keeps to the driver's rules
                     │ cuLaunchKernel
                     └────────►  launches.py  cubin.py     checked against the cubin's own table, written to a journal
                                 faults.py                 faults that a test plants
                                 computing.py              computed by the reference

    bench cuda host ──► rest.py  rest.cc               while it takes times, nothing is computed

The tests in on_gpu/ are for any GPU: without one, test_on_stand_in.py runs them here.

The stand-in behaves like a GPU in this: tensors of host and device do not mix. A backward pass runs in a thread of its
own, on the stream of its forward pass. A thread has no context until it sets one. While a graph is captured, launches
are not computed, and nothing may wait or be loaded. A replay runs launches and operators in order, on the current
contents of memory, which the graph keeps only where it was allocated in the capture: it fails once other memory was
freed. An illegal access breaks the process.

It differs in this: everything runs at once, in the order of the calls, so a missing synchronisation is not
noticed. Times are made up, the same on every machine. There is one device.
"""
