"""The path of a call, from ``conv2d`` to a kernel. Imports and the input go down it.

    guarded_forward    a module's forward pass, its blocks as one op ──► block_call ──► block_ops
                                               (frozen_forward: what it is; trace_guards: whether a module is as it
                                               was then; signature: the arguments of the calls that it stands for)

    causal_update  causal_conv1d_update: what comes next, with a state
        │
    causal         causal_conv1d ──► silu_ops                  a convolution and SiLU as one op
        │                               │
    function_mode  F.conv1d, F.conv_transpose1d and so on, where a mode sends them on
        │                               │
        ├──► deferred ──────────────────┘                      a causal convolution that runs with a SiLU after it
        ├──► cross_correlation                                 each image with kernels of its own
        ├──► transposed     conv_transpose1d, conv_transpose2d, conv_transpose3d: the passes of another convolution
        │
    functional     conv1d, conv2d, conv3d ──► native          C++ runs the calls that it has seen
        │  does anything but eager autograd and autocast watch the call? (watchers)
        ├── no ──► fast_path     remembers calls; C++ runs later ones of their kind
        │            │
        └── yes ─► through_dispatcher    leaves to PyTorch what our ops do not support ──► sharded: DTensors, by parts
                     │
                   torch_ops     dwconv::fprop, dgrad, wgrad and others behind PyTorch's dispatcher; flops counts them
                     │           (cpp_ops: the next op of its kind runs in C++)
                     │
                   gradients     the derivative of a convolution, of any order, on either road
                     │
                   passes        one pass: on the tuned kernel of the plan, or on dwconv.problems.pytorch
                     │
                   call_plan     which kernel runs which pass, or both gradients: dispatch decides
                     │           (first_decisions: for a call of a new size, with the warnings)
                     ├──► plan_kernels ──► process_kernels    the kernels that this process has, each checked
                     ├──► background_builds ──► background_process ──► background_worker
                     │           │                                 built in other processes while PyTorch's op runs
                     │        spending      what that may take of the time of calls
                     │
                   arguments     what the user gave, checked: a Call with its Problem
                   tally         how often a plan was called, and with which weight
                   untuned_warnings ──► warned_once   each warning once in a process
                   process_decisions  lock writes what was decided, reset forgets it

A repeated call enters ``functional`` alone where C++ runs it. In Python it enters ``watchers``, ``fast_path``,
``tally``, ``passes`` and its kernel besides, and ``gradients`` on the way back. All else decides, builds and checks,
once for each size.

Each road runs each pass through an object with the same methods, ``gradients.Passes``: ``PlannedPasses`` at once,
``DispatchedPasses`` through the dispatcher, where they can be differentiated again.
"""
