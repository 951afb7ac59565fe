"""Run the jobs of a study: the runner, the executors (this machine, a shard, Ray), and the process of a job."""
