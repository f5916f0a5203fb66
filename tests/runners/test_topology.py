"""How a machine is put together, against what other tools say of it and of machines we lack."""

from __future__ import annotations

from runners.traces.topology import num_installed_cores, topology

# As nvidia-smi prints it where four accelerators hang in pairs on NVLink.
MATRIX = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV4\tSYS\tSYS\tPIX\t0-31\t0\t\tN/A
GPU1\tNV4\t X \tSYS\tSYS\tPIX\t0-31\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNV4\tSYS\t32-63\t1\t\tN/A
GPU3\tSYS\tSYS\tNV4\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPIX\tPIX\tSYS\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def _machine_of(folder, *, sockets, cores, threads):
    """A tree as the kernel shows it, with a cache a core and one a socket."""
    number = 0
    for socket in range(sockets):
        first = socket * cores * threads
        of_socket = f"{first}-{first + cores * threads - 1}"
        for core in range(cores):
            siblings = f"{first + core * threads}-{first + core * threads + threads - 1}"
            for _ in range(threads):
                cpu = folder / "cpu" / f"cpu{number}"
                (cpu / "topology").mkdir(parents=True)
                (cpu / "topology" / "physical_package_id").write_text(f"{socket}\n")
                (cpu / "topology" / "core_id").write_text(f"{core}\n")
                for index, (level, size, shared) in enumerate(
                    [("2", "1024K", siblings), ("3", "32M", of_socket)]
                ):
                    cache = cpu / "cache" / f"index{index}"
                    cache.mkdir(parents=True)
                    (cache / "level").write_text(level)
                    (cache / "type").write_text("Unified\n")
                    (cache / "size").write_text(size)
                    (cache / "shared_cpu_list").write_text(shared)
                number += 1
        node = folder / "node" / f"node{socket}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(of_socket)
        (node / "meminfo").write_text(f"Node {socket} MemTotal:       1000 kB\n")
    return folder


def test_sockets_cores_threads_and_who_shares_a_cache_are_told_apart(tmp_path):
    found = topology(_machine_of(tmp_path, sockets=2, cores=4, threads=2), links="")
    assert (found.num_sockets, found.num_physical_cores, found.threads_per_core) == (2, 8, 2)
    assert [(c.level, c.bytes, c.num_caches, c.num_sharing) for c in found.caches] == [
        (2, 1 << 20, 8, 2),
        (3, 32 << 20, 2, 8),
    ]
    assert [(n.num_cores, n.memory_bytes) for n in found.numa_nodes] == [(8, 1024000)] * 2


def test_links_between_accelerators_are_read_off_the_matrix_each_pair_once(tmp_path):
    links = topology(tmp_path, links=MATRIX).links
    assert {(link.first, link.second): link.kind for link in links} == {
        (0, 1): "NV4",
        (0, 2): "SYS",
        (0, 3): "SYS",
        (1, 2): "SYS",
        (1, 3): "SYS",
        (2, 3): "NV4",
    }


def test_installed_cores_are_those_present_though_some_are_offline(tmp_path):
    assert num_installed_cores(tmp_path) is None
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "present").write_text("0-3,8\n")
    assert num_installed_cores(tmp_path) == 5
