"""The second flavour of the cluster: MariaDB and slurmdbd of Debian's packages, so that `sacct` tells the past.

Own ports, own data directory beside the cluster's; started and ended by the cluster, process by process. Nothing of
the database that the packages may run is touched.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db")
PACKAGES = "slurmdbd mariadb-server"

CONF = """\
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage_port}
StorageUser=slurm
StoragePass=none
StorageLoc=slurm
LogFile={directory}/slurmdbd.log
PidFile={directory}/slurmdbd.pid
"""

FIRST_STATEMENTS = """\
CREATE DATABASE IF NOT EXISTS slurm;
CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY 'none';
GRANT ALL ON slurm.* TO 'slurm'@'127.0.0.1';
"""

# What slurm.conf says about it; without accounting it says accounting_storage/none.
STORAGE = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={directory}/munge/socket
AccountingStoreFlags=job_comment"""


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """The files of one database and its daemon in the cluster's directory."""

    directory: Path

    @property
    def conf(self) -> Path:
        return self.directory / "slurmdbd.conf"

    def write(self, *, user: str, port: int, storage_port: int) -> None:
        """The configuration, and an empty database of the user's own."""
        self.conf.write_text(
            CONF.format(directory=self.directory, user=user, port=port, storage_port=storage_port)
        )
        self.conf.chmod(0o600)
        (self.directory / "first.sql").write_text(FIRST_STATEMENTS)
        subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={self.directory}/database",
                f"--user={user}",
                "--auth-root-authentication-method=socket",
                "--skip-test-db",
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )

    def database_command(self, *, user: str, storage_port: int) -> list[str]:
        """A small server in the foreground, on the loopback only."""
        return [
            "mariadbd",
            "--no-defaults",
            f"--user={user}",
            f"--datadir={self.directory}/database",
            f"--socket={self.directory}/database.sock",
            f"--pid-file={self.directory}/database.pid",
            "--bind-address=127.0.0.1",
            f"--port={storage_port}",
            "--skip-name-resolve",
            f"--init-file={self.directory}/first.sql",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=8M",
            "--innodb-lock-wait-timeout=900",
        ]

    @property
    def storage_port(self) -> int:
        lines = self.conf.read_text().splitlines()
        return int(next(line.partition("=")[2] for line in lines if line.startswith("StoragePort=")))
