sysctl -w net.core.rmem_max=67108864
sysctl -w net.core.wmem_max=67108864
sysctl -w net.ipv4.tcp_rmem="4096 131072 33554432"
sysctl -w net.ipv4.tcp_wmem="4096 16384 33554432"
sysctl -w net.ipv4.tcp_timestamps=1
sysctl -w net.ipv4.tcp_no_metrics_save=1
sysctl -w net.ipv4.tcp_slow_start_after_idle=0
sysctl -w net.ipv4.tcp_mtu_probing=1
sysctl -w net.core.netdev_max_backlog=16384
sysctl -w net.core.netdev_budget=600
sysctl -w net.core.netdev_budget_usecs=4000
ethtool -G eth1 rx 1024
ethtool -L eth1 combined 4
ethtool -C eth1 adaptive-rx on
ethtool -K eth1 rx-lro off
ethtool -K eth1 tx-tcp-segmentation on
ethtool -K eth1 rx-ntuple-filter on
sysctl -w net.core.rps_sock_flow_entries=32768
echo 8192 > /sys/class/net/eth1/queues/rx-0/rps_flow_cnt
echo 8192 > /sys/class/net/eth1/queues/rx-1/rps_flow_cnt
echo 8192 > /sys/class/net/eth1/queues/rx-2/rps_flow_cnt
echo 8192 > /sys/class/net/eth1/queues/rx-3/rps_flow_cnt
echo 5 > /proc/irq/120/smp_affinity_list
echo 6 > /proc/irq/121/smp_affinity_list
echo 5 > /proc/irq/122/smp_affinity_list
echo 6 > /proc/irq/123/smp_affinity_list
taskset --cpu-list --pid 4 4713
taskset --cpu-list --pid 7 4714
taskset --cpu-list --pid 0-1,8-9 4716
echo performance > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy1/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy10/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy11/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy12/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy13/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy14/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy15/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy2/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy3/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy4/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy5/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy6/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy7/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy8/scaling_governor
echo performance > /sys/devices/system/cpu/cpufreq/policy9/scaling_governor
echo 1 > /sys/devices/system/cpu/cpu12/cpuidle/state2/disable
echo 1 > /sys/devices/system/cpu/cpu13/cpuidle/state2/disable
echo 1 > /sys/devices/system/cpu/cpu14/cpuidle/state2/disable
echo 1 > /sys/devices/system/cpu/cpu15/cpuidle/state2/disable
echo 1 > /sys/devices/system/cpu/cpu4/cpuidle/state2/disable
echo 1 > /sys/devices/system/cpu/cpu5/cpuidle/state2/disable
echo 1 > /sys/devices/system/cpu/cpu6/cpuidle/state2/disable
echo 1 > /sys/devices/system/cpu/cpu7/cpuidle/state2/disable
sysctl -w kernel.numa_balancing=0
echo 2048 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
echo madvise > /sys/kernel/mm/transparent_hugepage/enabled
sysctl -w vm.zone_reclaim_mode=0
sysctl -w vm.swappiness=10
echo none > /sys/block/nvme1n1/queue/scheduler
