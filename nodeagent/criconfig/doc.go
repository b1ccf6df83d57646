// Package criconfig translates a pod into what CRI is asked for: the sandbox's and the containers'
// configuration, with environment, command, labels, annotations and log paths. It is pure: no I/O, no clock.
//
// Labels and annotations are those that Kubernetes' own agent uses, so that tools like crictl show pods as
// usual, and they are all that a restarted agent needs to know its containers again.
//
// What cannot be translated is an error that names the field; nothing is left out in silence.
//
// These are the fields of CRI, and what each is made of:
//
//	PodSandboxConfig
//	  metadata                        name, namespace, uid; the attempt
//	  hostname                        hostnameOverride, hostname, else the name; with setHostnameAsFQDN and subdomain
//	                                  the qualified one; nothing on the node's network
//	  log_directory                   NAMESPACE_NAME_UID (PodDir)
//	  dns_config                      the node's resolver unless dnsPolicy is None, and dnsConfig (DNS)
//	  port_mappings                   ports of app containers, each once
//	  labels, annotations             the pod's, and those of this package
//	  linux.cgroup_parent             Facts.CgroupParent: a group by class and uid
//	  linux.sysctls                   securityContext.sysctls
//	  linux.overhead                  overhead
//	  linux.resources                 what the containers need together, or spec.resources
//	  linux.security_context
//	    namespace_options             hostNetwork, hostPID, hostIPC, shareProcessNamespace, hostUsers
//	    selinux_options, run_as_user, run_as_group, supplemental_groups(_policy)
//	                                  securityContext; fsGroup is the first of the groups
//	    privileged                    whether any container is
//	    seccomp                       RuntimeDefault: no code of the user's runs there
//	    apparmor, readonly_rootfs     not set, as kubelets
//	ContainerConfig
//	  metadata                        name; the attempt
//	  image                           what the runtime calls it, and the user
//	  command, args, working_dir, envs
//	                                  of the container, expanded (CTR-7)
//	  mounts                          the termination message, /etc/hosts, volumes; with ids of the pod's user namespace
//	                                  (MapMounts)
//	  devices, CDI_devices            not set: there are no device plugins or claims
//	  labels, annotations             those of this package
//	  log_path                        NAME/ATTEMPT.log
//	  stdin, stdin_once, tty          of the container
//	  stop_signal                     lifecycle.stopSignal
//	  linux.resources (Resources)
//	    cpu_shares                    requests.cpu, else the limit
//	    cpu_period, cpu_quota         limits.cpu, else that of the pod as a whole
//	    memory_limit_in_bytes         limits.memory, else that of the pod as a whole
//	    oom_score_adj                 class, memory request, priority (QOS-3)
//	    hugepage_limits               limits.hugepages-*; 0 for every other size of the machine
//	    memory_swap_limit_in_bytes    no swap, in cgroup v1
//	    unified                       no swap, and memory by class, in cgroup2
//	    cpuset_cpus, cpuset_mems      not set: no container has processors to itself
//	  linux.security_context          the container's securityContext, else the pod's:
//	    capabilities, privileged, selinux_options, readonly_rootfs, no_new_privs
//	    run_as_user, run_as_group, run_as_username
//	                                  securityContext; the image's user with a group of the pod's. Without one the
//	                                  image's user is left to the runtime, which knows its group
//	    supplemental_groups(_policy)  of the pod, fsGroup first
//	    masked_paths, readonly_paths  procMount
//	    seccomp                       seccompProfile; without, Unconfined or Node.SeccompDefault
//	    apparmor                      appArmorProfile, or the old annotation; the runtime's choice without
//	    namespace_options             as the sandbox's; an ephemeral container has those of its target
//
// What is Windows' is not set: agents refuse such pods.
package criconfig
