// Run the tests of the pure rules on the CPython of Pyodide: node run.mjs PYODIDE SITE REPOSITORY
//
// PYODIDE is the folder of the npm package, SITE one of pure Python packages. The exit code is that
// of the tests.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [pyodide, site, repository] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`));
const python = await loadPyodide({ indexURL: `${pyodide}/` });
for (const [at, root] of [["/repository", repository], ["/site", site]]) {
  python.FS.mkdir(at);
  python.FS.mount(python.FS.filesystems.NODEFS, { root }, at);
}
process.exit(python.runPython(readFileSync(`${repository}/release/pyodide/tests.py`, "utf8")));
